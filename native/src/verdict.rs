//! Which records of a produced batch are refused, and in what words; `kernel/reference/verdict.py` gives the rules.

use crate::batch::{Header, NO_TIMESTAMP};
use crate::errors::{Fault, INVALID_RECORD, INVALID_TIMESTAMP, RecordFault, Result};

/// A client learns nothing from the thousand-and-first bad record, and a hostile one sends millions.
const NAMED_MAX: usize = 1000;

/// Deltas no varlong exceeds,
const ALL: (i64, i64) = (i64::MIN, i64::MAX);
/// and bounds no delta meets.
const NONE: (i64, i64) = (1, 0);

/// The timestamps a batch may carry, as deltas to its base timestamp, so that the walk compares what it reads.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub deltas: (i64, i64),
    base: i64,
    /// The one timestamp of all records, if the batch claims LogAppendTime.
    shared: Option<i64>,
    now_ms: i64,
    before_max_ms: i64,
    after_max_ms: i64,
}

impl Window {
    pub fn of(header: &Header, by_broker: bool, before_max_ms: i64, after_max_ms: i64, now_ms: i64) -> Self {
        let base = header.base_timestamp;
        let earliest = now_ms.saturating_sub(before_max_ms);
        let latest = now_ms.saturating_add(after_max_ms);
        let shared = header.is_log_append_time().then_some(header.max_timestamp);
        let deltas = match shared {
            Some(timestamp) if by_broker || timestamp == NO_TIMESTAMP => NONE,
            Some(timestamp) if (earliest..=latest).contains(&timestamp) => ALL,
            Some(_) => NONE,
            None if by_broker => ALL,
            None => deltas_within(earliest, latest, base),
        };
        Self { deltas, base, shared, now_ms, before_max_ms, after_max_ms }
    }

    /// The delta that means -1: a record without a timestamp.
    pub fn no_timestamp_delta(&self) -> i64 {
        NO_TIMESTAMP.wrapping_sub(self.base) // Fits: -1 lies in the middle.
    }

    pub fn max_timestamp(&self, largest_delta: i64) -> i64 {
        self.shared.unwrap_or_else(|| self.base.wrapping_add(largest_delta))
    }

    /// What is wrong with a delta outside `deltas`; None if it means that the record has no timestamp.
    fn fault(&self, index: i32, delta: i64) -> Option<String> {
        // 128 bits: a sum or a distance of two numbers of 64.
        let timestamp = match self.shared {
            Some(timestamp) => i128::from(timestamp),
            None => i128::from(self.base) + i128::from(delta),
        };
        let none = timestamp == i128::from(NO_TIMESTAMP);
        if self.shared.is_none() && none {
            return None;
        }
        let ahead = timestamp - i128::from(self.now_ms);
        let (before, after) = (self.before_max_ms, self.after_max_ms);
        if ahead > i128::from(after) {
            return Some(format!(
                "timestamp {timestamp} of record {index} is {ahead} ms ahead of the broker; \
                 message.timestamp.after.max.ms allows {after}"
            ));
        }
        if -ahead > i128::from(before) && !none {
            return Some(format!(
                "timestamp {timestamp} of record {index} is {} ms behind the broker; \
                 message.timestamp.before.max.ms allows {before}",
                -ahead
            ));
        }
        Some(match self.shared {
            Some(_) => format!("record {index} claims LogAppendTime, which only the broker sets"),
            None => format!("timestamp {timestamp} of record {index} does not fit 64 bits"),
        })
    }
}

/// The deltas of the timestamps from `earliest` to `latest`.
fn deltas_within(earliest: i64, latest: i64, base: i64) -> (i64, i64) {
    let (lowest, highest) = (i128::from(earliest) - i128::from(base), i128::from(latest) - i128::from(base));
    let all = i128::from(i64::MIN)..=i128::from(i64::MAX);
    if lowest > *all.end() || highest < *all.start() {
        return NONE;
    }
    (lowest.max(*all.start()) as i64, highest.min(*all.end()) as i64)
}

/// The records refused so far, each with one fault: a missing key rather than a timestamp, as Kafka has it.
pub struct Faults {
    window: Window,
    named: Vec<(i16, RecordFault)>,
}

impl Faults {
    pub fn new(window: Window) -> Self {
        Self { window, named: Vec::new() }
    }

    #[cold]
    pub fn timestamp(&mut self, index: i32, delta: i64) -> Result<()> {
        match self.window.fault(index, delta) {
            Some(message) => self.name(index, INVALID_TIMESTAMP, message),
            None => Ok(()),
        }
    }

    #[cold]
    pub fn no_key(&mut self, index: i32) -> Result<()> {
        let message = format!("record {index} has no key; the topic is compacted (cleanup.policy)");
        self.name(index, INVALID_RECORD, message)
    }

    pub fn refuse_if_any(self) -> Result<()> {
        if self.named.is_empty() { Ok(()) } else { Err(self.refusal("")) }
    }

    /// Records come in order, so that one named already is the last.
    fn name(&mut self, batch_index: i32, error: i16, message: String) -> Result<()> {
        if self.named.last().is_some_and(|(_, last)| last.batch_index == batch_index) {
            self.named.pop();
        }
        if self.named.len() == NAMED_MAX {
            return Err(self.refusal(" at least"));
        }
        self.named.push((error, RecordFault { batch_index, message }));
        Ok(())
    }

    fn refusal(&self, at_least: &str) -> Fault {
        let any_timestamp = self.named.iter().any(|(error, _)| *error == INVALID_TIMESTAMP);
        let count = self.named.len();
        let mut text = self.named.first().map(|(_, fault)| fault.message.clone()).unwrap_or_default();
        if count > 1 {
            text += &format!(" ({count} records are refused{at_least})");
        }
        Fault::Invalid {
            error: if any_timestamp { INVALID_TIMESTAMP } else { INVALID_RECORD },
            text,
            records: self.named.iter().map(|(_, fault)| fault.clone()).collect(),
        }
    }
}
