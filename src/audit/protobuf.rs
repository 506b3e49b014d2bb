//! As much of the protobuf wire format as an export needs: messages out of varints, doubles and bytes, and the
//! descriptors that let a reader understand them. Encoding: <https://protobuf.dev/programming-guides/encoding/>.

/// A message being written, field by field.
#[derive(Debug, Clone, Default)]
pub(super) struct Message(Vec<u8>);

/// Type of a field, as `google.protobuf.FieldDescriptorProto.Type` numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Double = 1,
    Int64 = 3,
    Uint64 = 4,
    Int32 = 5,
    Text = 9,
    Message = 11,
    Bytes = 12,
}

/// One field of a described message: number, name, type, and the full name of its message where it is one.
pub(super) type Field = (u32, &'static str, Type, &'static str);

impl Message {
    pub(super) fn varint(mut self, number: u32, value: u64) -> Self {
        self.key(number, 0);
        self.raw(value);
        self
    }

    pub(super) fn double(mut self, number: u32, value: f64) -> Self {
        self.key(number, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn bytes(mut self, number: u32, value: &[u8]) -> Self {
        self.key(number, 2);
        self.raw(u64::try_from(value.len()).unwrap_or(u64::MAX));
        self.0.extend_from_slice(value);
        self
    }

    pub(super) fn text(self, number: u32, value: &str) -> Self {
        self.bytes(number, value.as_bytes())
    }

    pub(super) fn message(self, number: u32, value: &Self) -> Self {
        self.bytes(number, &value.0)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn key(&mut self, number: u32, wire_type: u64) {
        self.raw(u64::from(number) << 3 | wire_type);
    }

    fn raw(&mut self, mut value: u64) {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                self.0.push(low & 0x7f);
                return;
            }
            self.0.push(low | 0x80);
        }
    }
}

/// A point in time as `google.protobuf.Timestamp`.
pub(super) fn timestamp(wall_ns: u64) -> Message {
    Message::default().varint(1, wall_ns / 1_000_000_000).varint(2, wall_ns % 1_000_000_000)
}

/// The file that describes `google.protobuf.Timestamp`.
pub(super) fn timestamp_file() -> Message {
    let fields = [(1, "seconds", Type::Int64, ""), (2, "nanos", Type::Int32, "")];
    file("google/protobuf/timestamp.proto", "google.protobuf", &[], "Timestamp", &fields)
}

/// A `FileDescriptorProto` with one message in it.
pub(super) fn file(name: &str, package: &str, needs: &[&str], message: &str, fields: &[Field]) -> Message {
    let described = fields.iter().fold(Message::default().text(1, message), |described, field| {
        let (number, name, kind, of) = *field;
        const OPTIONAL: u64 = 1;
        let field = Message::default().text(1, name).varint(3, u64::from(number)).varint(4, OPTIONAL);
        let field = field.varint(5, u64::from(kind as u8));
        let field = if of.is_empty() { field } else { field.text(6, of) };
        described.message(2, &field)
    });
    let file = Message::default().text(1, name).text(2, package);
    needs.iter().fold(file, |file, needed| file.text(3, needed)).message(4, &described).text(12, "proto3")
}

/// A `FileDescriptorSet` of these files, each behind those it needs.
pub(super) fn file_set(files: &[Message]) -> Vec<u8> {
    files.iter().fold(Message::default(), |set, file| set.message(1, file)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_equal_the_documented_examples() {
        // From the encoding guide: field 1 = 150; field 2 = "testing".
        assert_eq!(Message::default().varint(1, 150).into_bytes(), [0x08, 0x96, 0x01]);
        let testing = Message::default().text(2, "testing").into_bytes();
        assert_eq!(testing, [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        let nested = Message::default().message(3, &Message::default().varint(1, 150)).into_bytes();
        assert_eq!(nested, [0x1a, 0x03, 0x08, 0x96, 0x01]);
    }
}
