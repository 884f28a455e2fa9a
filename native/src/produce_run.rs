//! The batches of Produce requests that are alike; `kernel/reference/produce_run.py` gives the rules.

use crate::batch::{CODEC_MASK, Header, NO_PRODUCER_ID};
use crate::produce::{Checked, Rules, check_produced};

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

/// What the batches of a run are checked by and numbered from.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub rules: Rules,
    pub now_ms: i64,
    pub base_offset: i64,
    pub leader_epoch: i32,
}

/// The requests from `position` on that belong to one run, and where the one after them begins.
pub fn check_run(data: &[u8], position: usize, pattern: &[u8], place: &Place) -> (Vec<Taken>, usize) {
    let (mut taken, mut end) = (Vec::<Taken>::new(), position);
    let mut next_offset = place.base_offset;
    while taken.len() < BATCHES_MAX {
        let Some(request) = Request::read(data, end, pattern) else { break };
        let batch = &data[request.batch_at..request.batch_end];
        if !may_stand(batch, taken.last(), place) {
            break;
        }
        let mut header = match check_produced(batch, &place.rules, place.now_ms) {
            Ok(Checked::AsSent(header) | Checked::WithHeader(header)) => header,
            Ok(Checked::Rebuilt(..)) | Err(_) => break,
        };
        header.base_offset = next_offset;
        header.leader_epoch = place.leader_epoch;
        next_offset = header.last_offset().wrapping_add(1);
        taken.push(Taken { correlation_id: request.correlation_id, batch_at: request.batch_at, header });
        end = request.end;
    }
    (taken, end)
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

/// Whether the batch may follow the one before, and is none that is compressed anew or belongs to a transaction.
fn may_stand(batch: &[u8], before: Option<&Taken>, place: &Place) -> bool {
    let Some(header) = Header::parse(batch) else { return false };
    let codec = header.attributes & CODEC_MASK;
    if header.is_transactional() || place.rules.codec.is_some_and(|wanted| wanted as i16 != codec) {
        return false;
    }
    match before.map(|taken| &taken.header) {
        None => true,
        Some(before) if before.producer_id != header.producer_id => false,
        Some(_) if header.producer_id == NO_PRODUCER_ID => true,
        Some(before) => {
            before.producer_epoch == header.producer_epoch && header.base_sequence == sequence_after(before)
        }
    }
}

/// Sequences begin at 0 again after the largest one.
fn sequence_after(header: &Header) -> i32 {
    header.base_sequence.wrapping_add(header.count) & i32::MAX
}
