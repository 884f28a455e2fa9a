//! Control records: what brokers write into the log for brokers and consumers; `kernel/control.py` gives the rules.

use crate::batch::Header;
use crate::decode::{Spans, records_of};
use crate::errors::{Fault, Result};

const KEY_SIZE: usize = 4;
const END_TXN_VALUE_SIZE: usize = 6;

pub const ABORT: i16 = 0;
pub const COMMIT: i16 = 1;
pub const UNKNOWN: i16 = -1;
/// Names of the types by number.
const NAMES: [&str; 7] =
    ["ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"];

/// Type and value of the first control record of the control batch at `position`.
pub fn read_control(buffer: &[u8], position: usize) -> Result<(i16, Vec<u8>)> {
    let header = Header::read(buffer, position)?;
    let data = records_of(buffer, &header, position)?;
    let mut spans = Spans::new(&data, &header)?;
    let first = spans.next()?;
    while spans.next()?.is_some() {} // The whole batch must be sound.
    let (Some(first), true) = (first, header.is_control()) else {
        let kind = if header.is_control() { "control batch without a record" } else { "batch of data" };
        return Fault::corrupt(format!("offset {} is a {kind}, not a control record", header.base_offset));
    };
    let kind = control_type(first.key.unwrap_or_default(), first.offset)?;
    Ok((kind, first.value.unwrap_or_default().to_vec()))
}

/// What the key of the control record at `offset` names.
fn control_type(key: &[u8], offset: i64) -> Result<i16> {
    let Some(&[version_high, version_low, high, low]) = key.first_chunk::<KEY_SIZE>() else {
        let size = key.len();
        return Fault::corrupt(format!("the control record at {offset} has a key of {size} bytes, {KEY_SIZE} needed"));
    };
    let version = i16::from_be_bytes([version_high, version_low]);
    if version < 0 {
        return Fault::corrupt(format!("the control record at {offset} has version {version}"));
    }
    let number = i16::from_be_bytes([high, low]);
    Ok(if (0..NAMES.len() as i16).contains(&number) { number } else { UNKNOWN })
}

/// Type and coordinator epoch of the marker in the control batch at `position`.
pub fn read_end_txn_marker(buffer: &[u8], position: usize) -> Result<(i16, i32)> {
    let (kind, value) = read_control(buffer, position)?;
    let name = NAMES.get(kind as usize).unwrap_or(&"UNKNOWN");
    if kind != ABORT && kind != COMMIT {
        return Fault::corrupt(format!("a {name} control record does not end a transaction"));
    }
    let Some(&[version_high, version_low, epoch @ ..]) = value.first_chunk::<END_TXN_VALUE_SIZE>() else {
        let size = value.len();
        return Fault::corrupt(format!("a {name} marker has a value of {size} bytes, {END_TXN_VALUE_SIZE} needed"));
    };
    let version = i16::from_be_bytes([version_high, version_low]);
    if version < 0 {
        return Fault::corrupt(format!("a {name} marker has version {version}"));
    }
    Ok((kind, i32::from_be_bytes(epoch)))
}
