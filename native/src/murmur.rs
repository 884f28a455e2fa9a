//! The hash by which Kafka's clients map keys to partitions.

const SEED: u32 = 0x9747_B28C;
const M: u32 = 0x5BD1_E995;

/// Murmur2 as in Kafka's clients, unsigned.
pub fn murmur2(data: &[u8]) -> u32 {
    let mut h = SEED ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k = (k ^ k >> 24).wrapping_mul(M);
        h = h.wrapping_mul(M) ^ k;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u32::from(*byte));
        h = (h ^ tail).wrapping_mul(M);
    }
    h = (h ^ h >> 13).wrapping_mul(M);
    h ^ h >> 15
}

#[cfg(test)]
mod tests {
    use super::murmur2;

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(murmur2(b"21"), -973_932_308_i32 as u32);
        assert_eq!(murmur2(b"foobar"), -790_332_482_i32 as u32);
        assert_eq!(murmur2(b"abc"), 479_470_107);
    }
}
