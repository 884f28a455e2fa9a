//! Builds the batches of a topic's partitions from columns; `kernel/reference/topic_batches.py`
//! gives the rules.

use std::collections::BTreeMap;

use crate::arrow_rows::{Headers, Rows};
use crate::batch::{Codec, HEADER_SIZE, NO_LEADER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TRANSACTIONAL_FLAG};
use crate::encode::{Builder, NO_HEADERS, Origin, write_field};
use crate::errors::{Fault, Result};
use crate::murmur::murmur2;
use crate::varint;

pub const PARTITIONS_MAX: usize = 1_000_000;
/// Attributes, and varints of the length, of both deltas and of two sizes: the maximum a row takes
/// beside its bytes.
const RECORD_OVERHEAD: usize = 1 + 5 + 10 + 5 + 5 + 5;

/// How batches are built, and their producer.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub partitions: usize,
    pub batch_bytes: usize,
    pub codec: Codec,
    pub level: Option<i32>,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub transactional: bool,
    pub round_robin: bool,
}

/// A batch that is ready to be sent to a partition.
#[derive(Debug)]
pub struct Built {
    pub partition: usize,
    pub records: i32,
    pub data: Vec<u8>,
}

/// The batches of one topic being built, one per partition.
#[derive(Debug)]
pub struct TopicBatches {
    plan: Plan,
    next: usize,
    next_bytes: usize,
    builders: BTreeMap<usize, Builder>,
    sequences: BTreeMap<usize, i32>,
    /// The encoded headers of the row being added; the buffer is reused.
    encoded: Vec<u8>,
}

impl TopicBatches {
    pub fn new(plan: Plan, first: usize) -> Self {
        Self {
            next: first % plan.partitions,
            plan,
            next_bytes: 0,
            builders: BTreeMap::new(),
            sequences: BTreeMap::new(),
            encoded: Vec::new(),
        }
    }

    /// Uncompressed bytes of the rows in incomplete batches.
    pub fn held_bytes(&self) -> usize {
        self.builders.values().map(Builder::records_size).sum()
    }

    pub fn compresses(&self) -> bool {
        self.plan.codec != Codec::None
    }

    /// Add rows; returns the batches that became complete.
    pub fn add(&mut self, rows: &Rows<'_>, now_ms: i64) -> Result<Vec<Built>> {
        let mut complete = Vec::new();
        let mut encoded = std::mem::take(&mut self.encoded);
        for index in 0..rows.count {
            let (key, value) = (rows.key.get(index), rows.value.get(index));
            let headers = encode_headers(&rows.headers, index, &mut encoded)?;
            let size = RECORD_OVERHEAD + key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len) + headers.len();
            let to = self.partition_for(rows.partition.get(index), key, size)?;
            let held = self.builders.get(&to).map_or(0, |builder| HEADER_SIZE + builder.records_size());
            if held > 0 && held + size > self.plan.batch_bytes {
                complete.extend(self.built(to)?);
            }
            let builder = self.builders.entry(to).or_insert_with(|| Builder::new(0, None));
            let delta = i64::from(builder.last_offset_delta) + 1;
            builder.append(delta, rows.timestamp.get(index).unwrap_or(now_ms), key, value, headers)?;
        }
        self.encoded = encoded;
        Ok(complete)
    }

    /// All batches that have rows, by partition.
    pub fn flush(&mut self) -> Result<Vec<Built>> {
        let partitions = self.builders.keys().copied().collect::<Vec<_>>();
        let mut complete = Vec::with_capacity(partitions.len());
        for partition in partitions {
            complete.extend(self.built(partition)?);
        }
        Ok(complete)
    }

    fn partition_for(&mut self, named: Option<i32>, key: Option<&[u8]>, size: usize) -> Result<usize> {
        let partitions = self.plan.partitions;
        if let Some(named) = named {
            return match usize::try_from(named) {
                Ok(partition) if partition < partitions => Ok(partition),
                _ => Err(Fault::Mistake(format!(
                    "a row names partition {named}; the topic has {partitions}, counted from 0"
                ))),
            };
        }
        let to = self.next;
        if self.plan.round_robin {
            self.next = (to + 1) % partitions;
            return Ok(to);
        }
        if let Some(key) = key {
            return Ok((murmur2(key) & 0x7FFF_FFFF) as usize % partitions);
        }
        self.next_bytes += size;
        if self.next_bytes >= self.plan.batch_bytes.saturating_sub(HEADER_SIZE) {
            (self.next, self.next_bytes) = ((to + 1) % partitions, 0);
        }
        Ok(to)
    }

    fn built(&mut self, partition: usize) -> Result<Option<Built>> {
        let Some(builder) = self.builders.remove(&partition) else { return Ok(None) };
        let Plan { codec, level, producer_id, producer_epoch, transactional, .. } = self.plan;
        let base_sequence = match producer_id {
            NO_PRODUCER_ID => NO_SEQUENCE,
            _ => {
                let next = self.sequences.entry(partition).or_insert(0);
                let first = *next;
                *next = first.wrapping_add(builder.count) & i32::MAX;
                first
            }
        };
        let origin = Origin {
            leader_epoch: NO_LEADER_EPOCH,
            producer_id,
            producer_epoch,
            base_sequence,
            attributes: Some(codec as i16 | if transactional { TRANSACTIONAL_FLAG } else { 0 }),
            append_time_ms: None,
            last_offset_delta: None,
        };
        let packed = builder.pack(codec, level)?;
        let mut data = Vec::with_capacity(HEADER_SIZE + packed.len());
        data.extend_from_slice(&builder.header(codec, &packed, &origin).pack());
        data.extend_from_slice(&packed);
        Ok(Some(Built { partition, records: builder.count, data }))
    }
}

/// A row's headers with their count, encoded into `out`.
fn encode_headers<'a>(headers: &Headers<'_>, index: usize, out: &'a mut Vec<u8>) -> Result<&'a [u8]> {
    let range = headers.range(index);
    if range.is_empty() {
        return Ok(NO_HEADERS);
    }
    out.clear();
    varint::write(out, range.len() as i64);
    for at in range {
        let Some(key) = headers.key.get(at).filter(|_| headers.is_header(at)) else {
            return Err(Fault::Mistake("a header has no name; every header needs one".into()));
        };
        write_field(out, Some(key));
        write_field(out, headers.value.get(at));
    }
    Ok(out)
}
