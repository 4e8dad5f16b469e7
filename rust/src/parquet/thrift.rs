//! Writes Thrift's compact protocol, in which Parquet has its metadata. Only the types that Parquet needs.

/// Types of fields and list elements.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I8: u8 = 3;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// A struct that is being written: its fields in ascending order of their ids.
#[derive(Debug, Default)]
pub(super) struct Struct {
    bytes: Vec<u8>,
    last_id: u8,
}

impl Struct {
    pub(super) fn bool(mut self, id: u8, value: bool) -> Self {
        self.field(id, if value { TRUE } else { FALSE });
        self
    }

    pub(super) fn i8(mut self, id: u8, value: u8) -> Self {
        self.field(id, I8);
        self.bytes.push(value);
        self
    }

    pub(super) fn i32(mut self, id: u8, value: i32) -> Self {
        self.field(id, I32);
        write_zigzag(&mut self.bytes, value.into());
        self
    }

    pub(super) fn i64(mut self, id: u8, value: u64) -> Self {
        self.field(id, I64);
        write_zigzag(&mut self.bytes, value as i64);
        self
    }

    pub(super) fn string(mut self, id: u8, value: &str) -> Self {
        self.field(id, BINARY);
        write_binary(&mut self.bytes, value);
        self
    }

    pub(super) fn child(mut self, id: u8, value: Self) -> Self {
        self.field(id, STRUCT);
        self.bytes.extend(value.finish());
        self
    }

    pub(super) fn numbers(mut self, id: u8, values: &[i32]) -> Self {
        self.list(id, I32, values.len());
        values.iter().for_each(|&value| write_zigzag(&mut self.bytes, value.into()));
        self
    }

    pub(super) fn strings(mut self, id: u8, values: &[&str]) -> Self {
        self.list(id, BINARY, values.len());
        values.iter().for_each(|value| write_binary(&mut self.bytes, value));
        self
    }

    pub(super) fn children(mut self, id: u8, values: Vec<Self>) -> Self {
        self.list(id, STRUCT, values.len());
        values.into_iter().for_each(|value| self.bytes.extend(value.finish()));
        self
    }

    /// The bytes of the struct.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }

    /// Fields are at most 15 ids apart, so that type and distance fit into a byte.
    fn field(&mut self, id: u8, kind: u8) {
        self.bytes.push((id - self.last_id) << 4 | kind);
        self.last_id = id;
    }

    fn list(&mut self, id: u8, kind: u8, length: usize) {
        self.field(id, LIST);
        if length < 15 {
            self.bytes.push((length as u8) << 4 | kind);
        } else {
            self.bytes.push(0xF0 | kind);
            write_varint(&mut self.bytes, length as u64);
        }
    }
}

fn write_binary(bytes: &mut Vec<u8>, value: &str) {
    write_varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value.as_bytes());
}

/// Seven bits a byte, the lowest first; the top bit says that more follow.
pub(super) fn write_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// A number whose sign is the lowest bit: 0, -1, 1, -2 are 0, 1, 2, 3.
pub(super) fn write_zigzag(bytes: &mut Vec<u8>, value: i64) {
    write_varint(bytes, ((value << 1) ^ (value >> 63)) as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_equal_those_of_the_specification() {
        let inner = Struct::default().bool(1, true).bool(2, false).i8(3, 64);
        let bytes = Struct::default().i32(1, -1).i64(3, 300).string(4, "ab").child(5, inner).numbers(6, &[1; 16]);
        let mut expected = vec![0x15, 1, 0x26, 0xD8, 0x04, 0x18, 2, b'a', b'b', 0x1C, 0x11, 0x12, 0x13, 64, 0];
        expected.extend([0x19, 0xF5, 16]);
        expected.extend([2; 16]);
        expected.push(0);
        assert_eq!(bytes.finish(), expected);
    }
}
