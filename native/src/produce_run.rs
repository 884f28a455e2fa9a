//! The batches of Produce requests that are alike; `kernel/reference/produce_run.py` gives the rules.

use crate::batch::{CODEC_MASK, Header};
use crate::produce::{Checked, Rules, check_counted};

const SIZE: usize = 4;
const API_KEY_AND_VERSION: usize = 4;
const CORRELATION_ID: usize = 4;
/// Of a partition, its topic and the request, each without tagged fields.
const ENDS: [u8; 3] = [0; 3];
const BATCHES_MAX: usize = 256;

/// One request of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken {
    pub correlation_id: i32,
    /// Where the batch begins.
    pub batch_at: usize,
    /// To be written over the one that was sent.
    pub header: Header,
}

/// What still fits into the segment that the batches are written to.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub bytes: i64,
    pub batches: i64,
    pub latest_timestamp: i64,
    pub last_offset: i64,
}

impl Room {
    fn takes(&self, header: &Header) -> bool {
        self.batches > 0
            && self.bytes >= header.size() as i64
            && self.latest_timestamp >= header.max_timestamp
            && self.last_offset >= header.last_offset()
    }

    fn without(self, header: &Header) -> Self {
        Self { bytes: self.bytes - header.size() as i64, batches: self.batches - 1, ..self }
    }
}

/// Batches that are going to be appended together.
#[derive(Debug)]
pub struct Run {
    pub rules: Rules,
    pub room: Room,
    pub now_ms: i64,
    pub next_offset: i64,
    pub leader_epoch: i32,
    pub headers: Vec<Header>,
}

impl Run {
    /// The requests from `position` on that may be added, and where the one after them begins.
    pub fn find(&self, data: &[u8], position: usize, pattern: &[u8]) -> (Vec<Taken>, usize) {
        let (mut found, mut end) = (Vec::<Taken>::new(), position);
        let (mut next_offset, mut room) = (self.next_offset, self.room);
        let most = self.rules.at_once_max.unwrap_or(usize::MAX);
        let mut bytes = 0;
        while found.len() < BATCHES_MAX && bytes < most {
            let Some(request) = Request::read(data, end, pattern) else { break };
            let batch = &data[request.batch_at..request.batch_end];
            if !self.may_stand(batch, found.last()) {
                break;
            }
            let mut header = match check_counted(batch, &self.rules, self.now_ms) {
                Ok((Checked::AsSent(header) | Checked::WithHeader(header), unpacked)) => {
                    bytes += unpacked;
                    header
                }
                Ok((Checked::Rebuilt(..), _)) | Err(_) => break,
            };
            header.base_offset = next_offset;
            header.leader_epoch = self.leader_epoch;
            if !room.takes(&header) {
                break;
            }
            room = room.without(&header);
            next_offset = header.last_offset().wrapping_add(1);
            found.push(Taken { correlation_id: request.correlation_id, batch_at: request.batch_at, header });
            end = request.end;
        }
        (found, end)
    }

    /// Whether the batch may follow the one before, and is none that is compressed anew or belongs to a transaction.
    fn may_stand(&self, batch: &[u8], before: Option<&Taken>) -> bool {
        let Some(header) = Header::parse(batch) else { return false };
        let codec = header.attributes & CODEC_MASK;
        if header.is_transactional() || self.rules.codec.is_some_and(|wanted| wanted as i16 != codec) {
            return false;
        }
        match before {
            Some(before) => follows(&header, &before.header),
            None => self.last_of(&header).is_none_or(|last| follows(&header, last)),
        }
    }

    /// The last batch so far of the producer with an id that sent this one.
    pub fn last_of(&self, header: &Header) -> Option<&Header> {
        let mut earlier = self.headers.iter();
        if header.has_producer() { earlier.rfind(|earlier| earlier.producer_id == header.producer_id) } else { None }
    }

    pub fn add(&mut self, found: &[Taken]) {
        for Taken { header, .. } in found {
            self.room = self.room.without(header);
            self.next_offset = header.last_offset().wrapping_add(1);
            self.headers.push(*header);
        }
    }
}

struct Request {
    correlation_id: i32,
    batch_at: usize,
    batch_end: usize,
    end: usize,
}

impl Request {
    /// The request at `position` if it is whole and like `pattern`.
    fn read(data: &[u8], position: usize, pattern: &[u8]) -> Option<Self> {
        let (kind, rest) = pattern.split_at_checked(API_KEY_AND_VERSION)?;
        let mut at = position;
        let size = i32::from_be_bytes(*data.get(at..)?.first_chunk::<SIZE>()?);
        at += SIZE;
        let end = at.checked_add(usize::try_from(size).ok()?)?;
        let request = data.get(..end)?;
        if request.get(at..at + API_KEY_AND_VERSION)? != kind {
            return None;
        }
        at += API_KEY_AND_VERSION;
        let correlation_id = i32::from_be_bytes(*request.get(at..)?.first_chunk::<CORRELATION_ID>()?);
        at += CORRELATION_ID;
        if request.get(at..at.checked_add(rest.len())?)? != rest {
            return None;
        }
        at += rest.len();
        let length = records_length(request, &mut at)?;
        let batch_end = at.checked_add(length)?;
        (request.get(batch_end..)? == ENDS).then_some(Self { correlation_id, batch_at: at, batch_end, end })
    }
}

/// How many bytes of records follow: an unsigned varint of one more, in its shortest form or not; None: none at all.
fn records_length(data: &[u8], at: &mut usize) -> Option<usize> {
    let mut value = 0u64;
    for shift in (0..35).step_by(7) {
        let byte = *data.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return usize::try_from(value).ok()?.checked_sub(1).filter(|length| *length > 0);
        }
    }
    None
}

/// Whether the batch comes from the same producer, if from any with an id, and its sequence after that of the other.
fn follows(header: &Header, before: &Header) -> bool {
    header.producer_id == before.producer_id
        && (!header.has_producer()
            || (header.producer_epoch == before.producer_epoch && header.base_sequence == sequence_after(before)))
}

/// Sequences begin at 0 again after the largest one.
fn sequence_after(header: &Header) -> i32 {
    header.base_sequence.wrapping_add(header.count) & i32::MAX
}
