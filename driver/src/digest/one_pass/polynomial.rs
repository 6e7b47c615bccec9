//! Powers of x modulo the polynomial of CRC-32C (RFC 3720 appendix B.4), as carry-less
//! multiplication wants them. They move a part of a message to where it stands ahead of the rest.
//!
//! Bits are reflected: the lowest one is the highest power. A product of two such numbers lacks one
//! bit, so each factor is of one power less.

/// The polynomial without x^32.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// x^-1: x times this is 1.
const BEFORE_ONE: u32 = ((0x8000_0000 ^ POLYNOMIAL) << 1) | 1;

/// x times a remainder.
const fn times_x(remainder: u32) -> u32 {
    (remainder >> 1) ^ (POLYNOMIAL & (remainder & 1).wrapping_neg())
}

/// A remainder times x^`bits`.
pub(super) const fn times_power(mut remainder: u32, bits: usize) -> u32 {
    let mut bit = 0;
    while bit < bits {
        remainder = times_x(remainder);
        bit += 1;
    }
    remainder
}

/// The factor that moves 64 bits of a message ahead by `bits`, where the product is 128 bits of a
/// message.
pub(super) const fn ahead(bits: usize) -> u64 {
    (times_power(BEFORE_ONE, bits) as u64) << 32
}

/// The factor that moves a CRC ahead by `bits`, at least 32, where the product is the next 64 bits
/// that `crc32` takes.
pub(super) const fn crc_ahead(bits: usize) -> u32 {
    times_power(BEFORE_ONE, bits - 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_times_its_inverse_is_one() {
        assert_eq!(times_x(BEFORE_ONE), 0x8000_0000);
        assert_eq!(ahead(1), 0x8000_0000 << 32);
    }

    #[test]
    fn x_to_the_32_is_the_polynomial() {
        assert_eq!(times_power(0x8000_0000, 32), POLYNOMIAL);
        assert_eq!(crc_ahead(65), POLYNOMIAL);
    }
}
