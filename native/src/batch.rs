//! The header of a record batch, format version 2; `ottla/kernel/batch.py` gives the rules of its fields.

use crate::errors::{Fault, Result};

pub const MAGIC: i8 = 2;
pub const HEADER_SIZE: usize = 61;
/// Base offset and length, which `length` does not include.
pub const LOG_OVERHEAD: usize = 12;
pub const LENGTH_AT: usize = 8;
pub const LEADER_EPOCH_AT: usize = 12;
pub const MAGIC_AT: usize = 16;
pub const CRC_AT: usize = 17;
/// The first byte under the CRC.
pub const ATTRIBUTES_AT: usize = 21;
pub const MAX_TIMESTAMP_AT: usize = 35;

pub const CODEC_MASK: i16 = 0x07;
pub const TIMESTAMP_TYPE_FLAG: i16 = 0x08;
pub const TRANSACTIONAL_FLAG: i16 = 0x10;
pub const CONTROL_FLAG: i16 = 0x20;
pub const DELETE_HORIZON_FLAG: i16 = 0x40;

pub const NO_TIMESTAMP: i64 = -1;
pub const NO_PRODUCER_ID: i64 = -1;
pub const NO_SEQUENCE: i32 = -1;
pub const NO_LEADER_EPOCH: i32 = -1;

const MIN_LENGTH: i32 = (HEADER_SIZE - LOG_OVERHEAD) as i32;

/// The compression of a batch; the numbers are those of the attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl Codec {
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    pub fn of(number: i64) -> Option<Self> {
        usize::try_from(number).ok().and_then(|at| Self::ALL.get(at).copied())
    }

    pub fn name(self) -> &'static str {
        ["none", "gzip", "snappy", "lz4", "zstd"][self as usize]
    }
}

/// The fields of a header in the order of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub base_offset: i64,
    pub length: i32,
    pub leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub count: i32,
}

impl Header {
    /// The header at the start of `bytes`, unchecked; None if they are too few.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_SIZE] = bytes.get(..HEADER_SIZE)?.try_into().ok()?;
        Some(Self {
            base_offset: i64::from_be_bytes(at(bytes, 0)),
            length: i32::from_be_bytes(at(bytes, LENGTH_AT)),
            leader_epoch: i32::from_be_bytes(at(bytes, LEADER_EPOCH_AT)),
            magic: bytes[MAGIC_AT] as i8,
            crc: u32::from_be_bytes(at(bytes, CRC_AT)),
            attributes: i16::from_be_bytes(at(bytes, ATTRIBUTES_AT)),
            last_offset_delta: i32::from_be_bytes(at(bytes, 23)),
            base_timestamp: i64::from_be_bytes(at(bytes, 27)),
            max_timestamp: i64::from_be_bytes(at(bytes, MAX_TIMESTAMP_AT)),
            producer_id: i64::from_be_bytes(at(bytes, 43)),
            producer_epoch: i16::from_be_bytes(at(bytes, 51)),
            base_sequence: i32::from_be_bytes(at(bytes, 53)),
            count: i32::from_be_bytes(at(bytes, 57)),
        })
    }

    /// The header at `position`. Checks neither the records nor the checksum.
    pub fn read(buffer: &[u8], position: usize) -> Result<Self> {
        let rest = buffer.get(position..).unwrap_or_default();
        let Some(header) = Self::parse(rest) else {
            return Fault::corrupt(format!(
                "a batch header takes {HEADER_SIZE} bytes, {} are left at {position}",
                rest.len()
            ));
        };
        match header_fault(header.length, header.magic) {
            Some(fault) => Fault::corrupt(format!("{fault} (at {position})")),
            None => Ok(header),
        }
    }

    /// The bytes of the header unchanged.
    pub fn pack(&self) -> [u8; HEADER_SIZE] {
        let mut out = [0; HEADER_SIZE];
        out[..LENGTH_AT].copy_from_slice(&self.base_offset.to_be_bytes());
        out[LENGTH_AT..LEADER_EPOCH_AT].copy_from_slice(&self.length.to_be_bytes());
        out[LEADER_EPOCH_AT..MAGIC_AT].copy_from_slice(&self.leader_epoch.to_be_bytes());
        out[MAGIC_AT] = self.magic as u8;
        out[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&self.crc.to_be_bytes());
        out[ATTRIBUTES_AT..23].copy_from_slice(&self.attributes.to_be_bytes());
        out[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        out[27..MAX_TIMESTAMP_AT].copy_from_slice(&self.base_timestamp.to_be_bytes());
        out[MAX_TIMESTAMP_AT..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        out[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        out[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        out[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        out[57..].copy_from_slice(&self.count.to_be_bytes());
        out
    }

    /// The batch of this header and `records`.
    pub fn followed_by(&self, records: &[u8]) -> Vec<u8> {
        let mut batch = Vec::with_capacity(HEADER_SIZE + records.len());
        batch.extend_from_slice(&self.pack());
        batch.extend_from_slice(records);
        batch
    }

    /// Bytes of the whole batch. A header that `read` accepted has a positive length.
    pub fn size(&self) -> usize {
        self.length.max(0) as usize + LOG_OVERHEAD
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset.wrapping_add(i64::from(self.last_offset_delta))
    }

    pub fn codec(&self) -> Result<Codec> {
        let number = self.attributes & CODEC_MASK;
        Codec::of(i64::from(number)).ok_or_else(|| {
            let offset = self.base_offset;
            Fault::Corrupt(format!("the batch at offset {offset} names compression {number}; 0 to 4 are known"))
        })
    }

    pub fn is_log_append_time(&self) -> bool {
        self.attributes & TIMESTAMP_TYPE_FLAG != 0
    }

    /// The broker's time when the batch was appended; -1 if the records carry their own timestamps.
    pub fn append_time(&self) -> i64 {
        if self.is_log_append_time() { self.max_timestamp } else { NO_TIMESTAMP }
    }

    pub fn has_producer(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_FLAG != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_FLAG != 0
    }

    pub fn delete_horizon_ms(&self) -> Option<i64> {
        (self.attributes & DELETE_HORIZON_FLAG != 0).then_some(self.base_timestamp)
    }
}

pub fn attributes_of(
    codec: Codec,
    log_append_time: bool,
    transactional: bool,
    control: bool,
    delete_horizon: bool,
) -> i16 {
    let flag = |set: bool, flag: i16| if set { flag } else { 0 };
    codec as i16
        | flag(log_append_time, TIMESTAMP_TYPE_FLAG)
        | flag(transactional, TRANSACTIONAL_FLAG)
        | flag(control, CONTROL_FLAG)
        | flag(delete_horizon, DELETE_HORIZON_FLAG)
}

/// Why a batch of version 2 cannot have this length and magic; None if it can.
pub fn header_fault(length: i32, magic: i8) -> Option<String> {
    if magic != MAGIC {
        return Some(format!("magic is {magic}; only record batches of magic {MAGIC} are supported"));
    }
    if length < MIN_LENGTH {
        return Some(format!("length is {length}; the header alone takes {MIN_LENGTH}"));
    }
    None
}

fn at<const N: usize>(bytes: &[u8; HEADER_SIZE], position: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[position..position + N]);
    out
}
