//! A model file taken apart as far as is needed to leave its weights where they lie.
//!
//! Loading a model from one file costs its size twice: the file is parsed into memory and every weight copied out of
//! that. ONNX Runtime maps weights that are declared to lie outside the model instead, and a page that nobody reads costs
//! nothing. So the weights of an unchanged file are declared to lie in that very file: what is handed over is the model
//! without them, a few hundred kilobytes. Weights that lie at an address their kernels could not read are copied, once.
//!
//! Only the fields needed are looked at, after the published schema (`onnx.proto`); all others are passed on as bytes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use crate::proxy::onnx::Element;

/// Weights below this many bytes stay in the model.
const OUTSIDE_BYTES_MIN: u64 = 4 << 10;
/// No more than this is held of a file beside its copied weights, in bytes; where more would have to be, the file is
/// loaded as it is.
const OUTLINE_BYTES_MAX: u64 = 64 << 20;

/// How deep graphs may lie in each other.
const DEPTH_MAX: usize = 16;

/// What is known of a model without its weights.
#[derive(Debug)]
pub struct Outline {
    /// The model, its large weights declared to lie in the file it was read from. Nothing where there are none.
    pub model: Option<Vec<u8>>,
    /// The large weights that have to be handed over beside it.
    pub copied: Vec<Copied>,
    /// Every operator in it.
    pub operators: BTreeSet<String>,
}

/// A weight, copied out of the file.
#[derive(Debug)]
pub struct Copied {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub element: Element,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its values, little-endian.
    pub bytes: Vec<u8>,
}

/// Field numbers of the schema.
mod field {
    pub const MODEL_GRAPH: u64 = 7;
    pub const GRAPH_NODE: u64 = 1;
    pub const GRAPH_INITIALIZER: u64 = 5;
    pub const NODE_INPUT: u64 = 1;
    pub const NODE_OPERATOR: u64 = 4;
    pub const NODE_ATTRIBUTE: u64 = 5;
    pub const ATTRIBUTE_GRAPH: u64 = 6;
    pub const ATTRIBUTE_GRAPHS: u64 = 11;
    pub const TENSOR_SIDE: u64 = 1;
    pub const TENSOR_TYPE: u64 = 2;
    pub const TENSOR_NAME: u64 = 8;
    pub const TENSOR_RAW: u64 = 9;
    pub const TENSOR_OUTSIDE: u64 = 13;
    pub const TENSOR_LOCATION: u64 = 14;
    pub const ENTRY_KEY: u64 = 1;
    pub const ENTRY_VALUE: u64 = 2;
}

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

/// A large weight: what its entry says beside its values, and where those lie.
struct Weight {
    head: Vec<u8>,
    name: String,
    shape: Vec<usize>,
    element: u64,
    offset: u64,
    length: u64,
}

/// Where a weight is to lie.
enum Place {
    /// In the file.
    Outside,
    /// In memory of its own.
    Copied(Element),
    /// In the model.
    Inside,
}

enum Piece {
    Bytes(Vec<u8>),
    Weight(Weight),
}

struct Graph {
    bytes: Vec<u8>,
    /// Whether weights stay in the file.
    outside: bool,
    copied: Vec<Copied>,
    uses: Uses,
}

/// What the graph's nodes say.
#[derive(Default)]
struct Uses {
    operators: BTreeSet<String>,
    /// Values that something other than a `Gather` reads.
    computed_with: BTreeSet<String>,
}

/// The outline of a model file; nothing where it is not laid out as expected.
///
/// # Errors
/// When the file cannot be read.
pub fn outline(path: &Path) -> io::Result<Option<Outline>> {
    let name = match path.file_name().and_then(|name| name.to_str()) {
        Some(name) => name.to_owned(),
        None => return Ok(None),
    };
    let mut reader = Reader::open(path)?;
    match reader.model(&name) {
        Ok(outline) => Ok(outline),
        // Whatever is wrong with it, ONNX Runtime says it better.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => Ok(None),
        Err(error) => Err(error),
    }
}

struct Reader {
    file: BufReader<File>,
    at: u64,
    end: u64,
    held: u64,
}

impl Reader {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let end = file.metadata()?.len();
        Ok(Self { file: BufReader::new(file), at: 0, end, held: 0 })
    }

    fn model(&mut self, file_name: &str) -> io::Result<Option<Outline>> {
        let mut model = Vec::new();
        let mut graph = None;
        while self.at < self.end {
            let (number, kind) = self.tag()?;
            if (number, kind) == (field::MODEL_GRAPH, BYTES) {
                if graph.is_some() {
                    return Err(strange());
                }
                let read = self.graph(file_name)?;
                put_bytes(&mut model, number, &read.bytes);
                graph = Some(read);
            } else {
                self.copy(number, kind, &mut model)?;
            }
        }
        Ok(graph.map(|Graph { outside, copied, uses, .. }| Outline {
            model: (outside || !copied.is_empty()).then_some(model),
            copied,
            operators: uses.operators,
        }))
    }

    fn graph(&mut self, file_name: &str) -> io::Result<Graph> {
        let end = self.length()?;
        let mut pieces = Vec::new();
        let mut uses = Uses::default();
        while self.at < end {
            let (number, kind) = self.tag()?;
            if (number, kind) == (field::GRAPH_INITIALIZER, BYTES) {
                pieces.push(self.initializer()?);
                continue;
            }
            let mut bytes = Vec::new();
            self.copy(number, kind, &mut bytes)?;
            if (number, kind) == (field::GRAPH_NODE, BYTES)
                && let Some((_, Value::Bytes(node))) = Fields(&bytes).next()?
            {
                uses.node(node, DEPTH_MAX)?;
            }
            pieces.push(Piece::Bytes(bytes));
        }
        if self.at != end {
            return Err(strange());
        }
        let mut graph = Graph { bytes: Vec::new(), outside: false, copied: Vec::new(), uses };
        for piece in pieces {
            let weight = match piece {
                Piece::Bytes(bytes) => {
                    graph.bytes.extend(bytes);
                    continue;
                }
                Piece::Weight(weight) => weight,
            };
            let tensor = match graph.uses.place(&weight) {
                Place::Outside => {
                    graph.outside = true;
                    weight.outside(file_name)
                }
                Place::Copied(element) => {
                    let tensor = weight.outside(file_name);
                    let bytes = self.bytes_at(weight.offset, weight.length)?;
                    graph.copied.push(Copied { name: weight.name, element, shape: weight.shape, bytes });
                    tensor
                }
                Place::Inside => {
                    self.hold(weight.length)?;
                    let values = self.bytes_at(weight.offset, weight.length)?;
                    let mut tensor = weight.head;
                    put_bytes(&mut tensor, field::TENSOR_RAW, &values);
                    tensor
                }
            };
            put_bytes(&mut graph.bytes, field::GRAPH_INITIALIZER, &tensor);
        }
        self.seek(end)?;
        Ok(graph)
    }

    fn initializer(&mut self) -> io::Result<Piece> {
        let end = self.length()?;
        let mut weight =
            Weight { head: Vec::new(), name: String::new(), shape: Vec::new(), element: 0, offset: 0, length: 0 };
        while self.at < end {
            let (number, kind) = self.tag()?;
            if (number, kind) == (field::TENSOR_RAW, BYTES) {
                let after = self.length()?;
                (weight.offset, weight.length) = (self.at, after - self.at);
                self.seek(after)?;
                continue;
            }
            let start = weight.head.len();
            self.copy(number, kind, &mut weight.head)?;
            let mut fields = Fields(weight.head.get(start..).unwrap_or_default());
            match (number, fields.next()?) {
                (field::TENSOR_SIDE, Some((_, Value::Number(side)))) => weight.shape.push(whole(side)?),
                (field::TENSOR_SIDE, Some((_, Value::Bytes(packed)))) => {
                    let mut sides = Fields(packed);
                    while !sides.0.is_empty() {
                        weight.shape.push(whole(sides.varint()?)?);
                    }
                }
                (field::TENSOR_TYPE, Some((_, Value::Number(element)))) => weight.element = element,
                (field::TENSOR_NAME, Some((_, Value::Bytes(name)))) => weight.name = text(name)?,
                _ => {}
            }
        }
        if self.at != end {
            return Err(strange());
        }
        if weight.length >= OUTSIDE_BYTES_MIN {
            return Ok(Piece::Weight(weight));
        }
        let mut tensor = weight.head;
        if weight.length > 0 {
            self.hold(weight.length)?;
            let values = self.bytes_at(weight.offset, weight.length)?;
            put_bytes(&mut tensor, field::TENSOR_RAW, &values);
            self.seek(end)?;
        }
        let mut bytes = Vec::new();
        put_bytes(&mut bytes, field::GRAPH_INITIALIZER, &tensor);
        Ok(Piece::Bytes(bytes))
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.file.read_exact(&mut byte)?;
        self.at += 1;
        let [byte] = byte;
        Ok(byte)
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(strange())
    }

    fn tag(&mut self) -> io::Result<(u64, u64)> {
        let tag = self.varint()?;
        Ok((tag >> 3, tag & 7))
    }

    /// Reads a length and gives where what follows ends.
    fn length(&mut self) -> io::Result<u64> {
        let length = self.varint()?;
        let end = self.at.checked_add(length).filter(|&end| end <= self.end);
        end.ok_or_else(strange)
    }

    /// Takes one field over as it is.
    fn copy(&mut self, number: u64, kind: u64, into: &mut Vec<u8>) -> io::Result<()> {
        match kind {
            VARINT => {
                let value = self.varint()?;
                put_number(into, number, value);
            }
            FIXED_64 | FIXED_32 => {
                put_varint(into, (number << 3) | kind);
                let bytes = self.take(if kind == FIXED_64 { 8 } else { 4 })?;
                into.extend(bytes);
            }
            BYTES => {
                let end = self.length()?;
                self.hold(end - self.at)?;
                let bytes = self.take(end - self.at)?;
                put_bytes(into, number, &bytes);
            }
            _ => return Err(strange()),
        }
        Ok(())
    }

    /// Counts what goes into the model.
    fn hold(&mut self, length: u64) -> io::Result<()> {
        self.held += length;
        if self.held > OUTLINE_BYTES_MAX { Err(strange()) } else { Ok(()) }
    }

    fn take(&mut self, length: u64) -> io::Result<Vec<u8>> {
        if self.end - self.at < length {
            return Err(strange());
        }
        let mut bytes = vec![0; whole(length)?];
        self.file.read_exact(&mut bytes)?;
        self.at += length;
        Ok(bytes)
    }

    fn bytes_at(&mut self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.seek(offset)?;
        self.take(length)
    }

    fn seek(&mut self, to: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(to))?;
        self.at = to;
        Ok(())
    }
}

impl Uses {
    fn node(&mut self, node: &[u8], depth: usize) -> io::Result<()> {
        let depth = depth.checked_sub(1).ok_or_else(strange)?;
        let (mut operator, mut inputs) = (String::new(), Vec::new());
        let mut fields = Fields(node);
        while let Some(next) = fields.next()? {
            match next {
                (field::NODE_OPERATOR, Value::Bytes(name)) => operator = text(name)?,
                (field::NODE_INPUT, Value::Bytes(name)) => inputs.push(text(name)?),
                (field::NODE_ATTRIBUTE, Value::Bytes(attribute)) => self.attribute(attribute, depth)?,
                _ => {}
            }
        }
        if operator != "Gather" {
            self.computed_with.extend(inputs);
        }
        self.operators.insert(operator);
        Ok(())
    }

    /// Branches and loops hold graphs of their own, which see the outer graph's weights.
    fn attribute(&mut self, attribute: &[u8], depth: usize) -> io::Result<()> {
        let mut fields = Fields(attribute);
        while let Some(next) = fields.next()? {
            let (field::ATTRIBUTE_GRAPH | field::ATTRIBUTE_GRAPHS, Value::Bytes(graph)) = next else { continue };
            let mut nodes = Fields(graph);
            while let Some(next) = nodes.next()? {
                if let (field::GRAPH_NODE, Value::Bytes(node)) = next {
                    self.node(node, depth)?;
                }
            }
        }
        Ok(())
    }

    /// Kernels may take a weight's address to be a multiple of its element's size, which a file does not promise. A
    /// `Gather` only copies.
    fn place(&self, weight: &Weight) -> Place {
        let (bytes, element) = match weight.element {
            2 | 3 | 9 | 17..=22 => (1, None),
            1 => (4, Some(Element::F32)),
            10 => (2, Some(Element::F16)),
            7 => (8, Some(Element::I64)),
            _ => return Place::Inside,
        };
        match element {
            _ if weight.offset.is_multiple_of(bytes) || !self.computed_with.contains(&weight.name) => Place::Outside,
            Some(element) => Place::Copied(element),
            None => Place::Inside,
        }
    }
}

impl Weight {
    /// Its entry with a place in the file for its values.
    fn outside(&self, file_name: &str) -> Vec<u8> {
        let mut tensor = self.head.clone();
        let (offset, length) = (self.offset.to_string(), self.length.to_string());
        for (key, value) in [("location", file_name), ("offset", &offset), ("length", &length)] {
            let mut entry = Vec::new();
            put_bytes(&mut entry, field::ENTRY_KEY, key.as_bytes());
            put_bytes(&mut entry, field::ENTRY_VALUE, value.as_bytes());
            put_bytes(&mut tensor, field::TENSOR_OUTSIDE, &entry);
        }
        put_number(&mut tensor, field::TENSOR_LOCATION, 1);
        tensor
    }
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// The fields of a message in memory.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn next(&mut self) -> io::Result<Option<(u64, Value<'a>)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            VARINT => Value::Number(self.varint()?),
            FIXED_64 => self.take(8).map(|_| Value::Fixed)?,
            FIXED_32 => self.take(4).map(|_| Value::Fixed)?,
            BYTES => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            _ => return Err(strange()),
        };
        Ok(Some((tag >> 3, value)))
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or_else(strange)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(strange())
    }

    fn take(&mut self, length: u64) -> io::Result<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(whole(length)?).ok_or_else(strange)?;
        self.0 = rest;
        Ok(bytes)
    }
}

fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            into.push(low);
            return;
        }
        into.push(low | 0x80);
    }
}

fn put_number(into: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(into, (number << 3) | VARINT);
    put_varint(into, value);
}

fn put_bytes(into: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(into, (number << 3) | BYTES);
    put_varint(into, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    into.extend(bytes);
}

fn whole(value: u64) -> io::Result<usize> {
    usize::try_from(value).map_err(|_| strange())
}

fn text(bytes: &[u8]) -> io::Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| strange())
}

fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not laid out as a model is expected to be")
}
