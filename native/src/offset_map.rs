//! The last offset of every key, in bounded memory; `kernel/reference/offset_map.py` gives the rules.

use md5::{Digest, Md5};

use crate::errors::{Fault, Result};

const ENTRY_SIZE: usize = 24;
const DIGEST_SIZE: usize = 16;
const EMPTY: [u8; DIGEST_SIZE] = [0; DIGEST_SIZE];
const PROBES_IN_DIGEST: usize = DIGEST_SIZE - 3;

/// Maps key digests to offsets, in one block of memory.
#[derive(Debug)]
pub struct OffsetMap {
    /// Arrays of bytes, because zeroed memory is not touched before it is used.
    entries: Vec<[u8; ENTRY_SIZE]>,
    keys: usize,
    keys_max: usize,
    /// The last offset that was added; maintained by the caller.
    pub latest_offset: i64,
}

impl OffsetMap {
    pub fn new(memory_bytes: i64, load_factor: f64) -> Result<Self> {
        let slots = memory_bytes.max(0) as usize / ENTRY_SIZE;
        let keys_max = (slots as f64 * load_factor) as usize;
        if keys_max < 1 {
            return Err(Fault::Mistake(format!(
                "{memory_bytes} bytes at load factor {load_factor:?} hold no key; raise \
                 log.cleaner.dedupe.buffer.size (it is divided by log.cleaner.threads)"
            )));
        }
        let Some(entries) = zeroed(slots) else {
            return Err(Fault::Mistake(format!(
                "there is no memory for {memory_bytes} bytes of keys; lower log.cleaner.dedupe.buffer.size"
            )));
        };
        Ok(Self { entries, keys: 0, keys_max, latest_offset: -1 })
    }

    pub fn slots(&self) -> usize {
        self.entries.len()
    }

    pub fn keys_max(&self) -> usize {
        self.keys_max
    }

    pub fn len(&self) -> usize {
        self.keys
    }

    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    pub fn is_full(&self) -> bool {
        self.keys >= self.keys_max
    }

    /// Set the key's latest offset. Returns false, without a change, if the map is full.
    pub fn put(&mut self, key: &[u8], offset: i64) -> bool {
        if self.is_full() {
            return false; // As in Kafka, even for a known key: the caller stops at the same record.
        }
        let digest: [u8; DIGEST_SIZE] = Md5::digest(key).into();
        let Some((slot, known)) = self.find(&digest) else { return false };
        let entry = &mut self.entries[slot];
        entry[..DIGEST_SIZE].copy_from_slice(&digest);
        entry[DIGEST_SIZE..].copy_from_slice(&offset.to_be_bytes());
        if !known {
            self.keys += 1;
        }
        self.latest_offset = offset;
        true
    }

    /// The latest offset of `key`; -1 if there is none.
    pub fn get(&self, key: &[u8]) -> i64 {
        let digest: [u8; DIGEST_SIZE] = Md5::digest(key).into();
        match self.find(&digest) {
            Some((slot, true)) => {
                let mut offset = [0; ENTRY_SIZE - DIGEST_SIZE];
                offset.copy_from_slice(&self.entries[slot][DIGEST_SIZE..]);
                i64::from_be_bytes(offset)
            }
            _ => -1,
        }
    }

    /// The slot of the digest's entry, or where it would go, and whether it is there. None: every
    /// slot is taken by others.
    fn find(&self, digest: &[u8; DIGEST_SIZE]) -> Option<(usize, bool)> {
        let slots = self.entries.len();
        let mut slot = 0;
        let found = |slot: usize| {
            let there = &self.entries[slot][..DIGEST_SIZE];
            if there == digest { Some((slot, true)) } else { (there == EMPTY).then_some((slot, false)) }
        };
        for at in 0..PROBES_IN_DIGEST {
            let number = u32::from_be_bytes([digest[at], digest[at + 1], digest[at + 2], digest[at + 3]]);
            slot = number as usize % slots;
            if let Some(answer) = found(slot) {
                return Some(answer);
            }
        }
        (0..slots).find_map(|_| {
            slot = (slot + 1) % slots;
            found(slot)
        })
    }
}

/// `count` empty entries. None if the memory cannot be allocated.
fn zeroed(slots: usize) -> Option<Vec<[u8; ENTRY_SIZE]>> {
    // `vec!` aborts the process if memory is refused. So it is reserved first, and `black_box`
    // keeps the compiler from removing that.
    let mut asked: Vec<[u8; ENTRY_SIZE]> = Vec::new();
    asked.try_reserve_exact(slots).ok()?;
    drop(std::hint::black_box(asked));
    Some(vec![[0; ENTRY_SIZE]; slots])
}
