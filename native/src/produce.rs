//! What a broker checks of a produced batch before it appends it, and what it writes into it;
//! `kernel/reference/produce.py` gives the rules.

use std::borrow::Cow;

use crate::batch::{CODEC_MASK, Codec, HEADER_SIZE, Header, LENGTH_AT, LOG_OVERHEAD, MAGIC, MAGIC_AT};
use crate::batch::{NO_TIMESTAMP, attributes_of};
use crate::codec::{LIMIT, RATIO, allowance, decompress};
use crate::crc;
use crate::decode::{Spans, records_of};
use crate::encode::{Builder, Origin};
use crate::errors::{Fault, MESSAGE_TOO_LARGE, Result};
use crate::varint;
use crate::verdict::{Faults, Window};

/// The settings of a topic that decide what may be appended to it.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub compacted: bool,
    pub log_append_time: bool,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    /// None: as the producer compressed it.
    pub codec: Option<Codec>,
    pub level: Option<i32>,
    /// None: any size.
    pub max_message_bytes: Option<i64>,
    /// False: a coordinator of this broker appends.
    pub from_client: bool,
    /// How many bytes of records may be checked; more is `Fault::Long`. None: any number.
    pub at_once_max: Option<usize>,
}

/// Compressing a batch takes about this many times as long as walking over it.
const REBUILD_COST: usize = 8;

/// What to do with a valid batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Checked {
    AsSent(Header),
    /// Overwrite the header that was sent.
    WithHeader(Header),
    /// Replace the batch that was sent.
    Rebuilt(Header, Vec<u8>),
}

/// Check the one batch in `buffer`.
pub fn check_produced(buffer: &[u8], rules: &Rules, now_ms: i64) -> Result<Checked> {
    check_counted(buffer, rules, now_ms).map(|(checked, _)| checked)
}

/// Like `check_produced`; also returns the size of the uncompressed records.
pub fn check_counted(buffer: &[u8], rules: &Rules, now_ms: i64) -> Result<(Checked, usize)> {
    let header = only_batch(buffer)?;
    check_header(&header, rules)?;
    check_size(header.size(), rules, "")?;
    check_length(header.size(), rules, 1)?;
    crc::check(&header, buffer)?;
    check_records(buffer, header, rules, now_ms).map_err(Fault::as_sent) // The checksum was right.
}

fn check_length(bytes: usize, rules: &Rules, cost: usize) -> Result<()> {
    match rules.at_once_max {
        Some(most) if bytes.saturating_mul(cost) > most => Err(Fault::Long),
        _ => Ok(()),
    }
}

/// The uncompressed records of the batch; `Fault::Long` as soon as there are too many to check at
/// once.
fn unpacked<'a>(buffer: &'a [u8], header: &Header, rules: &Rules) -> Result<Cow<'a, [u8]>> {
    let packed = &buffer[HEADER_SIZE..header.size()];
    let allowed = allowance(packed.len(), LIMIT, RATIO);
    match rules.at_once_max {
        Some(most) if most < allowed && header.codec()? != Codec::None => {
            // Too long, or a bomb, which a check in a thread will find.
            decompress(header.codec()?, packed, most, RATIO).map_err(|fault| match fault {
                Fault::Bomb(_) => Fault::Long,
                other => other,
            })
        }
        _ => records_of(buffer, header, 0),
    }
}

fn only_batch(buffer: &[u8]) -> Result<Header> {
    if buffer.len() >= HEADER_SIZE && buffer[MAGIC_AT] == MAGIC as u8 {
        let header = Header::read(buffer, 0)?;
        if header.size() == buffer.len() {
            return Ok(header);
        }
    }
    odd_batch(buffer)
}

/// The error for bytes that are not one whole batch.
#[cold]
fn odd_batch(buffer: &[u8]) -> Result<Header> {
    let sent = buffer.len();
    if sent <= MAGIC_AT {
        return invalid(format!("{sent} bytes were sent for a partition; exactly one record batch is needed"));
    }
    let magic = buffer[MAGIC_AT];
    if magic < MAGIC as u8 {
        return invalid(format!("magic is {magic}; only record batches of magic {MAGIC} are accepted"));
    }
    let length = buffer[LENGTH_AT..LOG_OVERHEAD].iter().fold(0u32, |length, byte| length << 8 | u32::from(*byte));
    let size = i64::from(length as i32) + LOG_OVERHEAD as i64;
    if size > sent as i64 {
        return invalid(format!("the batch takes {size} bytes, {sent} were sent"));
    }
    let header = Header::read(buffer, 0)?;
    if size < sent as i64 {
        let more = sent as i64 - size;
        return invalid(format!("{more} bytes follow the first batch; exactly one a partition is allowed"));
    }
    Ok(header)
}

fn check_header(header: &Header, rules: &Rules) -> Result<()> {
    let codec = header.attributes & CODEC_MASK;
    if codec > Codec::Zstd as i16 {
        return invalid(format!("the batch names compression {codec}; 0 to {} are known", Codec::Zstd as i16));
    }
    if !rules.from_client {
        return Ok(());
    }
    let Header { base_offset, last_offset_delta, count, producer_id, base_sequence, .. } = *header;
    if base_offset != 0 {
        return invalid(format!("base offset is {base_offset}; the broker assigns offsets, producers send 0"));
    }
    if last_offset_delta < 0 {
        return invalid(format!("last offset delta is {last_offset_delta}"));
    }
    if count <= 0 {
        return invalid(format!("the batch declares {count} records"));
    }
    let offsets = i64::from(last_offset_delta) + 1;
    if i64::from(count) != offsets {
        return invalid(format!("the batch declares {count} records and {offsets} offsets"));
    }
    if header.is_control() {
        return invalid("the batch is marked as control records, which clients may not write".into());
    }
    if header.has_producer() && base_sequence < 0 {
        return invalid(format!("producer {producer_id} sent sequence {base_sequence}"));
    }
    Ok(())
}

fn check_size(size: usize, rules: &Rules, when: &str) -> Result<()> {
    match rules.max_message_bytes {
        Some(allowed) if size as i64 > allowed => Err(Fault::Refused {
            error: MESSAGE_TOO_LARGE,
            text: format!("the record batch takes {size} bytes{when}; max.message.bytes allows {allowed}"),
        }),
        _ => Ok(()),
    }
}

fn check_records(buffer: &[u8], header: Header, rules: &Rules, now_ms: i64) -> Result<(Checked, usize)> {
    let codec = header.codec()?;
    let data = unpacked(buffer, &header, rules)?;
    let (before, after) = (rules.timestamp_before_max_ms, rules.timestamp_after_max_ms);
    let window = Window::of(&header, rules.log_append_time, before, after, now_ms);
    let (latest, in_order) = walk(&data, &header, window, rules.compacted)?;
    let mut wanted = rules.codec.unwrap_or(codec);
    if header.is_control() && codec == Codec::None {
        wanted = Codec::None; // Consumers read markers without decompressing.
    }
    if wanted != codec || !in_order {
        check_length(data.len(), rules, REBUILD_COST)?;
        return Ok((rebuild(&data, &header, rules, wanted, in_order, now_ms)?, data.len()));
    }
    let max_timestamp = if rules.log_append_time { now_ms } else { window.max_timestamp(latest) };
    Ok((with_max_timestamp(buffer, header, codec, rules.log_append_time, max_timestamp), data.len()))
}

/// The largest timestamp, and whether offset deltas are 0, 1, 2 ...
fn walk(data: &[u8], header: &Header, window: Window, key_needed: bool) -> Result<(i64, bool)> {
    let (earliest, latest_allowed) = window.allowed;
    let (mut latest, mut in_order, mut index) = (NO_TIMESTAMP, true, 0);
    let mut faults = Faults::new(window);
    let mut spans = Spans::new(data, header)?;
    while let Some(span) = spans.next()? {
        let timestamp = header.base_timestamp.wrapping_add(span.timestamp_delta); // As Java adds.
        latest = latest.max(timestamp);
        if timestamp > latest_allowed || timestamp < earliest {
            faults.timestamp(index, timestamp)?;
        }
        in_order &= span.offset - header.base_offset == i64::from(index);
        if key_needed && span.key.is_none() {
            faults.no_key(index)?;
        }
        index += 1;
    }
    faults.refuse_if_any()?;
    Ok((latest, in_order))
}

/// The same records, numbered from 0 and compressed with `codec`.
fn rebuild(data: &[u8], header: &Header, rules: &Rules, codec: Codec, in_order: bool, now_ms: i64) -> Result<Checked> {
    let mut builder = Builder::new(0, None);
    let mut spans = Spans::new(data, header)?;
    let (mut index, mut number) = (0, Vec::new());
    while let Some(span) = spans.next()? {
        if in_order {
            builder.append_raw(index, span.timestamp, &[], span.rest);
        } else {
            let mut after_offset = 0;
            varint::read_u32(span.rest, &mut after_offset).unwrap_or_default(); // The walk has read it before.
            number.clear();
            varint::write(&mut number, i64::from(index));
            builder.append_raw(index, span.timestamp, &number, &span.rest[after_offset..]);
        }
        index += 1;
    }
    let by_broker = rules.log_append_time;
    let origin = Origin {
        leader_epoch: header.leader_epoch,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        attributes: Some(attributes_of(codec, by_broker, header.is_transactional(), header.is_control(), false)),
        append_time_ms: by_broker.then_some(now_ms),
        last_offset_delta: None,
    };
    let packed = builder.pack(codec, rules.level)?;
    let header = builder.header(codec, &packed, &origin);
    let batch = header.followed_by(&packed);
    check_size(batch.len(), rules, &format!(" after compression with {}", codec.name()))?;
    Ok(Checked::Rebuilt(header, batch))
}

/// Under LogAppendTime the batch gets the broker's time; under CreateTime its max timestamp is
/// corrected. Most batches have the correct one already and are not changed.
fn with_max_timestamp(
    buffer: &[u8],
    mut header: Header,
    codec: Codec,
    log_append_time: bool,
    max_timestamp: i64,
) -> Checked {
    if header.is_log_append_time() == log_append_time && header.max_timestamp == max_timestamp {
        return Checked::AsSent(header);
    }
    let horizon = header.delete_horizon_ms().is_some();
    header.attributes = attributes_of(codec, log_append_time, header.is_transactional(), header.is_control(), horizon);
    header.max_timestamp = max_timestamp;
    header.crc = crc::of_parts(&header, &buffer[HEADER_SIZE..]);
    Checked::WithHeader(header)
}

/// For the time index: the delta of the batch's last offset; -1 without a timestamp.
pub fn offset_delta_of_max_timestamp(header: &Header) -> i32 {
    if header.max_timestamp == NO_TIMESTAMP { -1 } else { header.last_offset_delta }
}

fn invalid<T>(text: String) -> Result<T> {
    Err(Fault::invalid_record(text))
}
