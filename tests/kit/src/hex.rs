//! Hexadecimal text: bytes as documents print them.

/// Bytes of hexadecimal `text`; blanks between digits are for the reader.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| u8::try_from(c.to_digit(16).expect("a hexadecimal digit")).expect("below 16"))
        .collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty(), "an odd number of hexadecimal digits");
    pairs.iter().map(|[high, low]| high << 4 | low).collect()
}
