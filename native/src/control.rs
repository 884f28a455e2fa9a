//! Control records: what brokers write into the log for brokers and consumers; `kernel/control.py` gives the rules.

use crate::batch::{Codec, Header, attributes_of};
use crate::decode::{Spans, records_of};
use crate::encode::{Builder, NO_HEADERS, Origin};
use crate::errors::{Fault, Result};

const KEY_SIZE: usize = 4;
const END_TXN_VALUE_SIZE: usize = 6;
const VERSION: i16 = 0;

pub const ABORT: i16 = 0;
pub const COMMIT: i16 = 1;
pub const UNKNOWN: i16 = -1;
/// Names of the types by number.
const NAMES: [&str; 7] =
    ["ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"];

/// The control batch that commits or aborts a transaction in a partition; `origin` names its producer.
pub fn build_end_txn_marker(
    kind: i16,
    coordinator_epoch: i32,
    timestamp: i64,
    base_offset: i64,
    origin: Origin,
) -> Result<Vec<u8>> {
    if kind != ABORT && kind != COMMIT {
        return Err(Fault::Mistake(format!("a {} record does not end a transaction", name_of(kind))));
    }
    let mut key = VERSION.to_be_bytes().to_vec();
    key.extend_from_slice(&kind.to_be_bytes());
    let mut value = VERSION.to_be_bytes().to_vec();
    value.extend_from_slice(&coordinator_epoch.to_be_bytes());
    let mut builder = Builder::new(base_offset, None);
    builder.append(0, timestamp, Some(&key), Some(&value), NO_HEADERS)?;
    let attributes = attributes_of(Codec::None, false, true, true, false);
    let records = builder.pack(Codec::None, None)?;
    let header = builder.header(Codec::None, &records, &Origin { attributes: Some(attributes), ..origin });
    Ok(header.followed_by(&records))
}

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
    let name = name_of(kind);
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

fn name_of(kind: i16) -> &'static str {
    usize::try_from(kind).ok().and_then(|at| NAMES.get(at)).unwrap_or(&"UNKNOWN")
}
