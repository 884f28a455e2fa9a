//! The part of compaction that looks at records; `kernel/reference/compact.py` gives the rules.

use crate::batch::{Codec, HEADER_SIZE, Header, LOG_OVERHEAD, NO_TIMESTAMP, attributes_of};
use crate::crc;
use crate::decode::{Spans, check_claims, records_of};
use crate::encode::{Builder, Origin};
use crate::errors::Result;
use crate::offset_map::OffsetMap;

/// The options of `filter_batch`.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub now_ms: i64,
    pub delete_retention_ms: i64,
    /// All its records are removed.
    pub discard: bool,
    /// The batch stays even without records.
    pub retain_empty: bool,
    /// It is the marker of a transaction without any data left.
    pub marks_empty_txn: bool,
}

/// The part of a batch that stays.
#[derive(Debug, PartialEq, Eq)]
pub struct Filtered {
    pub left: Left,
    pub records_kept: i32,
    pub records_dropped: i32,
    /// Of the batch that is left; -1 without one.
    pub max_timestamp: i64,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    Nothing,
    /// The unchanged bytes of the batch.
    Unchanged,
    Rewritten(Vec<u8>),
}

/// Add the keys of a data batch from `from_offset` on. Returns false if the map is full and lacks
/// the rest.
pub fn put_keys(
    map: &mut OffsetMap,
    buffer: &[u8],
    header: &Header,
    position: usize,
    from_offset: i64,
) -> Result<bool> {
    let data = records_of(buffer, header, position)?;
    let mut spans = Spans::new(&data, header)?;
    while let Some(span) = spans.next()? {
        if let Some(key) = span.key
            && span.offset >= from_offset
            && !map.put(key, span.offset)
        {
            return Ok(false);
        }
    }
    if header.last_offset() >= from_offset {
        map.latest_offset = header.last_offset();
    }
    Ok(true)
}

/// The part of the batch at `position` that stays.
pub fn filter_batch(
    buffer: &[u8],
    position: usize,
    header: &Header,
    keep: &OffsetMap,
    options: &Options,
) -> Result<Filtered> {
    check_claims(header)?;
    if options.discard {
        return without_records(header, header.count, options.retain_empty);
    }
    let data = records_of(buffer, header, position)?;
    let Choice { stay, kept, tombstones } = choose(&data, header, keep, options.now_ms)?;
    let dropped = header.count - kept;
    if kept == 0 {
        return without_records(header, dropped, options.retain_empty);
    }
    let mut horizon_ms = header.delete_horizon_ms();
    if horizon_ms.is_none() && (tombstones || options.marks_empty_txn) {
        horizon_ms = Some(options.now_ms.wrapping_add(options.delete_retention_ms));
    } else if dropped == 0 {
        let (left, max_timestamp) = (Left::Unchanged, header.max_timestamp);
        return Ok(Filtered { left, records_kept: kept, records_dropped: 0, max_timestamp });
    }
    let (batch, max_timestamp) = with_records(&data, header, &stay, horizon_ms)?;
    Ok(Filtered { left: Left::Rewritten(batch), records_kept: kept, records_dropped: dropped, max_timestamp })
}

/// Which records stay, one byte each: a list of them would take many times the batch.
#[derive(Default)]
struct Choice {
    stay: Vec<bool>,
    kept: i32,
    /// Whether one is among those that stay.
    tombstones: bool,
}

fn choose(data: &[u8], header: &Header, keep: &OffsetMap, now_ms: i64) -> Result<Choice> {
    let mut choice = Choice::default();
    let tombstones_stay = header.delete_horizon_ms().is_none_or(|horizon_ms| now_ms < horizon_ms);
    let is_control = header.is_control();
    let mut spans = Spans::new(data, header)?;
    while let Some(span) = spans.next()? {
        let stays = is_control
            || span.offset > keep.latest_offset
            || span.key.is_some_and(|key| (span.value.is_some() || tombstones_stay) && span.offset >= keep.get(key));
        choice.stay.push(stays);
        choice.kept += i32::from(stays);
        choice.tombstones |= stays && span.value.is_none();
    }
    Ok(choice)
}

/// The batch of the records that stay, and its max timestamp.
fn with_records(data: &[u8], header: &Header, stay: &[bool], horizon_ms: Option<i64>) -> Result<(Vec<u8>, i64)> {
    let mut builder = Builder::new(header.base_offset, horizon_ms);
    let (mut spans, mut stay) = (Spans::new(data, header)?, stay.iter());
    while let Some(span) = spans.next()? {
        if stay.next() == Some(&true) {
            let offset_delta = (span.offset - header.base_offset) as i32; // It was read as a delta of 32 bits.
            builder.append_raw(offset_delta, span.timestamp, &[], span.rest);
        }
    }
    let codec = header.codec()?;
    let origin =
        Origin { last_offset_delta: Some(header.last_offset_delta), ..origin(header, codec, horizon_ms.is_some()) };
    let packed = builder.pack(codec, None)?;
    let batch = builder.header(codec, &packed, &origin).followed_by(&packed);
    Ok((batch, builder.max_timestamp))
}

fn without_records(header: &Header, dropped: i32, retain: bool) -> Result<Filtered> {
    if !retain {
        let (left, max_timestamp) = (Left::Nothing, NO_TIMESTAMP);
        return Ok(Filtered { left, records_kept: 0, records_dropped: dropped, max_timestamp });
    }
    let mut emptied = Header {
        attributes: attributes_of(
            Codec::None,
            header.is_log_append_time(),
            header.is_transactional(),
            header.is_control(),
            false,
        ),
        length: (HEADER_SIZE - LOG_OVERHEAD) as i32,
        base_timestamp: NO_TIMESTAMP,
        count: 0,
        ..*header
    };
    emptied.crc = crc::of_parts(&emptied, &[]);
    let batch = emptied.followed_by(&[]);
    let max_timestamp = header.max_timestamp;
    Ok(Filtered { left: Left::Rewritten(batch), records_kept: 0, records_dropped: dropped, max_timestamp })
}

/// The header fields of the rewritten batch that are copied from the old one.
fn origin(header: &Header, codec: Codec, horizon: bool) -> Origin {
    Origin {
        leader_epoch: header.leader_epoch,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        attributes: Some(attributes_of(
            codec,
            header.is_log_append_time(),
            header.is_transactional(),
            header.is_control(),
            horizon,
        )),
        append_time_ms: None,
        last_offset_delta: None,
    }
}
