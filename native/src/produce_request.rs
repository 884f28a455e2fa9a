//! Produce requests, from their frames to batches that are fit to be appended; `kernel/reference/produce_request.py` gives
//! the rules.

use std::ops::Range;

use crate::batch::{CODEC_MASK, Codec, Header};
use crate::produce::{Checked, Rules, check_counted};

const SIZE_BYTES: usize = 4;
const PRODUCE: i16 = 0;
const VERSIONS: Range<i16> = 3..14;
const FLEXIBLE_SINCE: i16 = 9;
const TOPIC_IDS_SINCE: i16 = 13;
const LOG_START_SINCE: i16 = 5;
const RECORD_ERRORS_SINCE: i16 = 8;
const ZSTD_SINCE: i16 = 7;
const TOPIC_ID_BYTES: usize = 16;
const BATCHES_MAX: usize = 256;
const NO_ERROR: [u8; 2] = [0; 2];
const NO_THROTTLE: [u8; 4] = [0; 4];

/// A request whose outline is in order; of its batches nothing is known yet.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the frame after it begins.
    pub end: usize,
    pub version: i16,
    pub correlation_id: i32,
    pub acks: i16,
    pub topics: Vec<Topic>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Topic {
    /// Where its name or its id stands.
    pub name: Range<usize>,
    pub partitions: Vec<Partition>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Partition {
    pub index: i32,
    /// Where its batch stands.
    pub records: Range<usize>,
}

/// Where the next batch of a partition goes, and what fits there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub next_offset: i64,
    pub leader_epoch: i32,
    pub log_start_offset: i64,
    pub bytes_left: i64,
    pub batches_left: i64,
    pub latest_timestamp: i64,
    pub offset_max: i64,
}

impl Place {
    pub fn takes(&self, header: &Header) -> bool {
        self.batches_left > 0
            && self.bytes_left >= header.size() as i64
            && self.latest_timestamp >= header.max_timestamp
            && self
                .next_offset
                .checked_add(i64::from(header.last_offset_delta))
                .is_some_and(|last| last <= self.offset_max)
    }

    /// Give the batch, which it takes, its offset and its epoch.
    pub fn number(&mut self, header: &mut Header) {
        header.base_offset = self.next_offset;
        header.leader_epoch = self.leader_epoch;
        self.next_offset = header.last_offset() + 1;
        self.bytes_left -= header.size() as i64;
        self.batches_left -= 1;
    }
}

/// What a producer with an id sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub epoch: i16,
    pub next: i32,
}

impl Sequence {
    pub fn of(header: &Header) -> Self {
        Self { epoch: header.producer_epoch, next: header.base_sequence }
    }

    /// Sequences begin at 0 again after the largest one.
    pub fn after(header: &Header) -> Self {
        Self { epoch: header.producer_epoch, next: header.base_sequence.wrapping_add(header.count) & i32::MAX }
    }
}

impl Request {
    pub fn names_ids(&self) -> bool {
        self.version >= TOPIC_IDS_SINCE
    }

    pub fn batches(&self) -> usize {
        self.topics.iter().map(|topic| topic.partitions.len()).sum()
    }
}

/// The request whose frame begins at `position`; None if it is not whole, or out of the ordinary.
pub fn outline(data: &[u8], position: usize) -> Option<Request> {
    let mut reader = Reader { data, at: position, is_flexible: false };
    let size = usize::try_from(reader.i32()?).ok()?;
    let end = position.checked_add(SIZE_BYTES)?.checked_add(size)?;
    reader.data = data.get(..end)?;
    let (api_key, version, correlation_id) = (reader.i16()?, reader.i16()?, reader.i32()?);
    if api_key != PRODUCE || !VERSIONS.contains(&version) {
        return None;
    }
    let client_id = reader.i16()?;
    if client_id >= 0 {
        std::str::from_utf8(reader.bytes(client_id as usize)?).ok()?;
    } else if client_id != -1 {
        return None;
    }
    reader.is_flexible = version >= FLEXIBLE_SINCE;
    reader.no_tags()?;
    if !reader.is_null_string()? {
        return None; // A transactional id.
    }
    let acks = reader.i16()?;
    if !(-1..=1).contains(&acks) {
        return None;
    }
    reader.i32()?; // The time-out.
    let mut topics = Vec::with_capacity(1);
    let mut batches = 0;
    for _ in 0..reader.count()? {
        let name = if version >= TOPIC_IDS_SINCE { reader.range(TOPIC_ID_BYTES)? } else { reader.string()? };
        let count = reader.count()?;
        batches += count;
        if batches > BATCHES_MAX {
            return None;
        }
        let mut partitions = Vec::with_capacity(count);
        for _ in 0..count {
            let index = reader.i32()?;
            let length = reader.length()?;
            partitions.push(Partition { index, records: reader.range(length)? });
            reader.no_tags()?;
        }
        reader.no_tags()?;
        topics.push(Topic { name, partitions });
    }
    reader.no_tags()?;
    if reader.at != end || has_twice(data, &topics) {
        return None;
    }
    Some(Request { end, version, correlation_id, acks, topics })
}

/// Whether a partition is named twice.
fn has_twice(data: &[u8], topics: &[Topic]) -> bool {
    let ascends = |topic: &Topic| topic.partitions.is_sorted_by(|one, next| one.index < next.index);
    if topics.len() == 1 && topics.iter().all(ascends) {
        return false; // As in most requests.
    }
    let mut named: Vec<_> = topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|partition| (&data[topic.name.clone()], partition.index)))
        .collect();
    named.sort_unstable();
    named.windows(2).any(|pair| pair[0] == pair[1])
}

/// How many more bytes of records may be checked.
pub struct Budget {
    pub bytes: usize,
}

/// The headers of a request's batches, in its order; None if one of them is not fit to be appended as it stands, or if they
/// are more than the budget allows. `rules` has those of each topic.
pub fn check(data: &[u8], request: &Request, rules: &[Rules], now_ms: i64, budget: &mut Budget) -> Option<Vec<Header>> {
    let mut fit = Vec::with_capacity(request.batches());
    for (topic, rules) in request.topics.iter().zip(rules) {
        for partition in &topic.partitions {
            if budget.bytes == 0 {
                return None;
            }
            let (header, bytes) = check_one(&data[partition.records.clone()], request.version, rules, now_ms)?;
            budget.bytes = budget.bytes.saturating_sub(bytes);
            fit.push(header);
        }
    }
    Some(fit)
}

fn check_one(batch: &[u8], version: i16, rules: &Rules, now_ms: i64) -> Option<(Header, usize)> {
    let header = Header::parse(batch)?;
    let codec = header.attributes & CODEC_MASK;
    if header.is_transactional()
        || rules.codec.is_some_and(|wanted| wanted as i16 != codec)
        || (version < ZSTD_SINCE && codec == Codec::Zstd as i16)
    {
        return None;
    }
    match check_counted(batch, rules, now_ms).ok()? {
        (Checked::AsSent(header) | Checked::WithHeader(header), bytes) => Some((header, bytes)),
        (Checked::Rebuilt(..), _) => None,
    }
}

/// Add the answer that says that the batches were appended; `offsets` has base offset, log append time and log start offset
/// of each, in the order of the request. With acks=0 there is no answer.
pub fn add_answer(answers: &mut Vec<u8>, data: &[u8], request: &Request, offsets: &[[i64; 3]]) {
    if request.acks == 0 {
        return;
    }
    let mut offsets = offsets.iter();
    let start = answers.len();
    let mut writer = Writer { out: answers, is_flexible: request.version >= FLEXIBLE_SINCE };
    writer.out.extend_from_slice(&[0; SIZE_BYTES]);
    writer.out.extend_from_slice(&request.correlation_id.to_be_bytes());
    writer.no_tags();
    writer.count(request.topics.len());
    for topic in &request.topics {
        if !request.names_ids() {
            writer.name_length(topic.name.len());
        }
        writer.out.extend_from_slice(&data[topic.name.clone()]);
        writer.count(topic.partitions.len());
        for partition in &topic.partitions {
            writer.out.extend_from_slice(&partition.index.to_be_bytes());
            writer.out.extend_from_slice(&NO_ERROR);
            let told = if request.version >= LOG_START_SINCE { 3 } else { 2 };
            for offset in offsets.next().iter().flat_map(|offsets| offsets.iter().take(told)) {
                writer.out.extend_from_slice(&offset.to_be_bytes());
            }
            if request.version >= RECORD_ERRORS_SINCE {
                writer.count(0);
                writer.null_string();
            }
            writer.no_tags();
        }
        writer.no_tags();
    }
    writer.out.extend_from_slice(&NO_THROTTLE);
    writer.no_tags();
    let size = (answers.len() - start - SIZE_BYTES) as i32;
    answers[start..start + SIZE_BYTES].copy_from_slice(&size.to_be_bytes());
}

/// Writes what has another form in flexible versions.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    is_flexible: bool,
}

impl Writer<'_> {
    fn no_tags(&mut self) {
        if self.is_flexible {
            self.out.push(0);
        }
    }

    /// Of an array's elements.
    fn count(&mut self, count: usize) {
        if self.is_flexible {
            self.uvarint(count + 1)
        } else {
            self.out.extend_from_slice(&(count as i32).to_be_bytes())
        }
    }

    fn name_length(&mut self, length: usize) {
        if self.is_flexible {
            self.uvarint(length + 1)
        } else {
            self.out.extend_from_slice(&(length as i16).to_be_bytes())
        }
    }

    fn null_string(&mut self) {
        if self.is_flexible { self.out.push(0) } else { self.out.extend_from_slice(&(-1_i16).to_be_bytes()) }
    }

    fn uvarint(&mut self, mut value: usize) {
        while value > 127 {
            self.out.push(value as u8 | 128);
            value >>= 7;
        }
        self.out.push(value as u8);
    }
}

/// Reads the fields of a message one after the other; None where one is cut off or not as it should be.
struct Reader<'a> {
    data: &'a [u8],
    at: usize,
    is_flexible: bool,
}

impl Reader<'_> {
    fn range(&mut self, length: usize) -> Option<Range<usize>> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.data.len())?;
        let range = self.at..end;
        self.at = end;
        Some(range)
    }

    fn bytes(&mut self, length: usize) -> Option<&[u8]> {
        let range = self.range(length)?;
        Some(&self.data[range])
    }

    fn i16(&mut self) -> Option<i16> {
        self.bytes(2)?.try_into().ok().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.bytes(4)?.try_into().ok().map(i32::from_be_bytes)
    }

    /// An unsigned varint in its shortest form.
    fn uvarint(&mut self) -> Option<usize> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = *self.data.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return if byte == 0 && shift > 0 { None } else { usize::try_from(value).ok() };
            }
        }
        None
    }

    /// The end of a structure, without tagged fields.
    fn no_tags(&mut self) -> Option<()> {
        (!self.is_flexible || self.bytes(1)? == [0]).then_some(())
    }

    fn is_null_string(&mut self) -> Option<bool> {
        if self.is_flexible { Some(self.uvarint()? == 0) } else { Some(self.i16()? == -1) }
    }

    /// Where a string that is not null stands.
    fn string(&mut self) -> Option<Range<usize>> {
        let length =
            if self.is_flexible { self.uvarint()?.checked_sub(1)? } else { usize::try_from(self.i16()?).ok()? };
        self.range(length)
    }

    /// How many bytes of records, or elements of an array, follow; None for null.
    fn length(&mut self) -> Option<usize> {
        if self.is_flexible { self.uvarint()?.checked_sub(1) } else { usize::try_from(self.i32()?).ok() }
    }

    /// The number of elements of an array that has some, and no more than there are bytes.
    fn count(&mut self) -> Option<usize> {
        self.length().filter(|count| (1..=self.data.len() - self.at).contains(count))
    }
}
