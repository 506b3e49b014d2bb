//! Finds a weight's bytes in an ONNX file, so that a test can break one number of a model and nothing else.

use std::ops::Range;

/// Fields of the messages on the way: `ModelProto.graph`, `GraphProto.initializer`, `TensorProto.name` and `.raw_data`.
const GRAPH: u64 = 7;
const INITIALIZER: u64 = 5;
const NAME: u64 = 8;
const RAW_DATA: u64 = 9;

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
