//! Bytes in hexadecimal digits.

pub fn digits(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
    let both = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
    bytes.iter().flat_map(both).collect()
}

pub fn bytes(digits: &str) -> Option<Vec<u8>> {
    let value = |digit: &u8| char::from(*digit).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(value(high)? << 4 | value(low)?).ok(),
        _ => None,
    };
    digits.as_bytes().chunks(2).map(byte).collect()
}
