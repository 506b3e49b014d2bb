//! Changes one thing of an ONNX file and nothing else: a number in a weight, or what an input is called.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::ops::Range;

/// Fields of the messages on the way: `ModelProto.graph`, `GraphProto.node`, `.input` and `.output`, `NodeProto.input` and
/// `.output`, `ValueInfoProto.name`.
const GRAPH: u64 = 7;
const NODE: u64 = 1;
const OUTLETS: [u64; 2] = [11, 12];
const USES: [u64; 2] = [1, 2];
const OUTLET_NAME: u64 = 1;
/// ONNX's numbers of two element types.
pub const I64: u8 = 7;
pub const BOOL: u8 = 9;
/// `GraphProto.initializer`, `TensorProto.name`, `.raw_data` and `.external_data`, and `.data_location` outside.
const INITIALIZER: u64 = 5;
const NAME: u64 = 8;
const RAW_DATA: u64 = 9;
const OUTSIDE: u64 = 13;
const IS_OUTSIDE: [u8; 2] = [14 << 3, 1];
/// Smaller weights may be shapes, which ONNX Runtime wants in the model.
const OUTSIDE_BYTES_MIN: usize = 128;

/// Where the raw values of the weight of this name lie in the file.
pub fn weight(file: &[u8], name: &str) -> Option<Range<usize>> {
    let graph = fields(file, 0..file.len()).find(|(field, _)| *field == GRAPH)?.1;
    fields(file, graph).filter(|(field, _)| *field == INITIALIZER).find_map(|(_, tensor)| {
        let part = |wanted| fields(file, tensor.clone()).find(|(field, _)| *field == wanted).map(|(_, range)| range);
        (&file[part(NAME)?] == name.as_bytes()).then(|| part(RAW_DATA)).flatten()
    })
}

/// The length-delimited fields of a message: their numbers and where they lie.
fn fields(file: &[u8], message: Range<usize>) -> impl Iterator<Item = (u64, Range<usize>)> + '_ {
    let mut at = message.start;
    std::iter::from_fn(move || {
        while at < message.end {
            let key = number(file, &mut at);
            match key & 7 {
                0 => drop(number(file, &mut at)),
                1 => at += 8,
                5 => at += 4,
                _ => {
                    let length = usize::try_from(number(file, &mut at)).expect("a length");
                    at += length;
                    return Some((key >> 3, at - length..at));
                }
            }
        }
        None
    })
}

fn number(file: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = file[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// The file in which the input or output of this name is called otherwise.
pub fn renamed(file: &[u8], from: &str, to: &str) -> Vec<u8> {
    let name = |fields: &[u64], field: u64, name: &[u8]| {
        (fields.contains(&field) && name == from.as_bytes()).then(|| message(field, to.as_bytes()))
    };
    let of_graph = |field: u64, part: &[u8]| match field {
        NODE => Some(message(field, &rewritten(part, &|field, bytes| name(&USES, field, bytes)))),
        _ if OUTLETS.contains(&field) => {
            Some(message(field, &rewritten(part, &|field, bytes| name(&[OUTLET_NAME], field, bytes))))
        }
        _ => None,
    };
    rewritten(file, &|field, graph| (field == GRAPH).then(|| message(field, &rewritten(graph, &of_graph))))
}

/// The file whose model takes one more input, which it makes nothing of.
pub fn with_input(file: &[u8], name: &str, element: u8, sides: &[u8]) -> Vec<u8> {
    // A shape of one dimension a side, behind the element type, in a tensor's type, behind the name.
    let shape: Vec<u8> = sides.iter().flat_map(|&side| message(1, &[1 << 3, side])).collect();
    let tensor = [vec![1 << 3, element], message(2, &shape)].concat();
    let outlet = [message(OUTLET_NAME, name.as_bytes()), message(2, &message(1, &tensor))].concat();
    let outlet = message(OUTLETS[0], &outlet);
    rewritten(file, &|field, graph| (field == GRAPH).then(|| message(field, &[graph, &outlet].concat())))
}

/// The file without its weights' values, and what lies beside it under this name and has them.
pub fn outside(file: &[u8], name: &str) -> (Vec<u8>, Vec<u8>) {
    let values = std::cell::RefCell::new(Vec::new());
    let of_tensor = |field: u64, bytes: &[u8]| {
        (field == RAW_DATA && bytes.len() >= OUTSIDE_BYTES_MIN).then(|| {
            let mut values = values.borrow_mut();
            let (offset, length) = (values.len().to_string(), bytes.len().to_string());
            values.extend(bytes);
            let entries = [("location", name), ("offset", &offset), ("length", &length)].map(|(key, value)| {
                message(OUTSIDE, &[message(1, key.as_bytes()), message(2, value.as_bytes())].concat())
            });
            [entries.concat(), IS_OUTSIDE.to_vec()].concat()
        })
    };
    let of_graph =
        |field: u64, part: &[u8]| (field == INITIALIZER).then(|| message(field, &rewritten(part, &of_tensor)));
    let model = rewritten(file, &|field, graph| (field == GRAPH).then(|| message(field, &rewritten(graph, &of_graph))));
    (model, values.into_inner())
}

/// What stands in the place of a field: other fields, or itself.
type Others<'a> = dyn Fn(u64, &[u8]) -> Option<Vec<u8>> + 'a;

/// A message with those length-delimited fields exchanged for which there are others.
fn rewritten(whole: &[u8], others: &Others<'_>) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(whole.len()), 0);
    while at < whole.len() {
        let start = at;
        let key = number(whole, &mut at);
        let mut other = None;
        match key & 7 {
            0 => drop(number(whole, &mut at)),
            1 => at += 8,
            5 => at += 4,
            _ => {
                let length = usize::try_from(number(whole, &mut at)).expect("a length");
                at += length;
                other = others(key >> 3, &whole[at - length..at]);
            }
        }
        match other {
            Some(fields) => out.extend(fields),
            None => out.extend(&whole[start..at]),
        }
    }
    out
}

/// A length-delimited field.
fn message(field: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for mut value in [field << 3 | 2, u64::try_from(bytes.len()).expect("a length")] {
        while value >= 0x80 {
            out.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
            value >>= 7;
        }
        out.push(u8::try_from(value).expect("seven bits"));
    }
    out.extend(bytes);
    out
}
