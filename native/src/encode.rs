//! Writing record batches; `kernel/reference/build.py` gives the rules.

use crate::batch::{Codec, HEADER_SIZE, Header, LOG_OVERHEAD, MAGIC, NO_TIMESTAMP};
use crate::codec::compress;
use crate::crc;
use crate::errors::{Fault, Result};
use crate::varint;

/// The limit of `length`, without the part of the header that it includes.
pub const RECORDS_SIZE_MAX: usize = i32::MAX as usize - (HEADER_SIZE - LOG_OVERHEAD);

/// The count of headers of a record that has none.
pub const NO_HEADERS: &[u8] = &[0];

/// The fields of a header that do not follow from the records.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    pub leader_epoch: i32,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    /// None: those of plain data in the codec the batch is built with.
    pub attributes: Option<i16>,
    /// None: the largest timestamp of the records.
    pub append_time_ms: Option<i64>,
    /// None: the last record's.
    pub last_offset_delta: Option<i32>,
}

/// A batch that grows record by record.
#[derive(Debug)]
pub struct Builder {
    pub base_offset: i64,
    pub count: i32,
    pub last_offset_delta: i32,
    pub max_timestamp: i64,
    base_timestamp: Option<i64>,
    records: Vec<u8>,
}

impl Builder {
    pub fn new(base_offset: i64, base_timestamp: Option<i64>) -> Self {
        Self {
            base_offset,
            count: 0,
            last_offset_delta: -1,
            max_timestamp: NO_TIMESTAMP,
            base_timestamp,
            records: Vec::new(),
        }
    }

    /// Bytes of the records before compression.
    pub fn records_size(&self) -> usize {
        self.records.len()
    }

    /// Add a record at a later offset than the last one's; returns its size. `headers` are encoded,
    /// with their count.
    #[inline]
    pub fn append(
        &mut self,
        offset_delta: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[u8],
    ) -> Result<usize> {
        let delta = self.follow(offset_delta)?;
        if timestamp < NO_TIMESTAMP {
            return Err(Fault::Mistake(format!("timestamp {timestamp} is negative")));
        }
        // A horizon may lie further from a timestamp than 64 bits reach; Java adds the delta as it subtracts it.
        let timestamp_delta = timestamp.wrapping_sub(self.base_timestamp.unwrap_or(timestamp));
        let body = 1
            + varint::size(timestamp_delta)
            + varint::size(offset_delta)
            + field_size(key)
            + field_size(value)
            + headers.len();
        let taken = varint::size(body as i64) + body;
        if taken > RECORDS_SIZE_MAX - self.records.len() {
            let held = self.records.len();
            let text = format!("a record of {taken} bytes after {held}: a batch holds at most {RECORDS_SIZE_MAX}");
            return Err(Fault::Mistake(text));
        }
        let out = &mut self.records;
        out.reserve(taken);
        varint::write(out, body as i64);
        out.push(0);
        varint::write(out, timestamp_delta);
        varint::write(out, offset_delta);
        write_field(out, key);
        write_field(out, value);
        out.extend_from_slice(headers);
        self.base_timestamp.get_or_insert(timestamp);
        self.count += 1;
        self.last_offset_delta = delta;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        Ok(taken)
    }

    /// Add a record from an existing batch: its bytes from the offset delta on, in two parts.
    pub fn append_raw(&mut self, offset_delta: i32, timestamp: i64, offset_part: &[u8], rest: &[u8]) {
        let timestamp_delta = timestamp.wrapping_sub(*self.base_timestamp.get_or_insert(timestamp));
        let body = 1 + varint::size(timestamp_delta) + offset_part.len() + rest.len();
        let out = &mut self.records;
        varint::write(out, body as i64);
        out.push(0);
        varint::write(out, timestamp_delta);
        out.extend_from_slice(offset_part);
        out.extend_from_slice(rest);
        self.count += 1;
        self.last_offset_delta = offset_delta;
        self.max_timestamp = self.max_timestamp.max(timestamp);
    }

    /// The records as the batch holds them.
    pub fn pack(&self, codec: Codec, level: Option<i32>) -> Result<std::borrow::Cow<'_, [u8]>> {
        if codec == Codec::None {
            return Ok(self.records.as_slice().into());
        }
        let packed = compress(codec, &self.records, level)?;
        if packed.len() > RECORDS_SIZE_MAX {
            let size = packed.len();
            return Err(Fault::Mistake(format!("{size} bytes of {}: too many for a batch", codec.name())));
        }
        Ok(packed.into())
    }

    /// The header of the batch that holds the records as `packed`.
    pub fn header(&self, codec: Codec, packed: &[u8], origin: &Origin) -> Header {
        let mut header = Header {
            base_offset: self.base_offset,
            length: (HEADER_SIZE - LOG_OVERHEAD + packed.len()) as i32,
            leader_epoch: origin.leader_epoch,
            magic: MAGIC,
            crc: 0,
            attributes: origin.attributes.unwrap_or(codec as i16),
            last_offset_delta: origin.last_offset_delta.unwrap_or(self.last_offset_delta),
            base_timestamp: self.base_timestamp.unwrap_or(NO_TIMESTAMP),
            max_timestamp: origin.append_time_ms.unwrap_or(self.max_timestamp),
            producer_id: origin.producer_id,
            producer_epoch: origin.producer_epoch,
            base_sequence: origin.base_sequence,
            count: self.count,
        };
        header.crc = crc::of_parts(&header, packed);
        header
    }

    fn follow(&self, offset_delta: i64) -> Result<i32> {
        match i32::try_from(offset_delta) {
            Ok(delta) if delta > self.last_offset_delta => Ok(delta),
            _ => {
                let last = self.last_offset_delta;
                Err(Fault::Mistake(format!("offset delta {offset_delta} does not follow {last}")))
            }
        }
    }
}

/// Append a length and the bytes, or the length of null.
#[inline]
pub fn write_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        Some(bytes) => {
            varint::write(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
        None => varint::write(out, -1),
    }
}

#[inline]
fn field_size(field: Option<&[u8]>) -> usize {
    field.map_or(1, |bytes| varint::size(bytes.len() as i64) + bytes.len())
}
