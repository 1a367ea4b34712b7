//! Detects binary files by their first bytes.

/// Whether a file that begins with `head` is binary: it contains a NUL or many control characters, or begins with the mark of
/// a well-known format. UTF-16 with a byte order mark is text.
pub fn is_binary(head: &[u8]) -> bool {
    const MARKS: [&[u8]; 8] =
        [b"%PDF-", b"PK\x03\x04", b"\x1f\x8b", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"\x7fELF", b"7z\xbc\xaf"];
    match head {
        [0xff, 0xfe, rest @ ..] => is_binary_utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => is_binary_utf16(rest, u16::from_be_bytes),
        _ if MARKS.iter().any(|mark| head.starts_with(mark)) => true,
        _ if memchr::memchr(0, head).is_some() => true,
        _ => {
            let controls = odd_controls(head);
            // Bytes that are not UTF-8 may be text in an older encoding, which has hardly any control characters.
            controls * 3 > head.len() || (controls * 20 > head.len() && !is_utf8_head(head))
        }
    }
}

/// Whether `unit` is a control character that is unusual in text. Tabs, line and page breaks, backspaces and escapes are not.
pub(super) fn is_odd_control(unit: u16) -> bool {
    matches!(unit, 0..=7 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f)
}

/// Counts the bytes of `head` for which [`is_odd_control`] is true. Every file that is read passes through here, so the loop
/// is written for vectorization: sums that fit in a byte, over whole vectors, and comparisons without branches.
pub(super) fn odd_controls(head: &[u8]) -> usize {
    const SUMMED: usize = u8::MAX as usize & !31;
    let is_odd = |byte: u8| {
        byte <= 7
            || byte == 0x0b
            || byte.wrapping_sub(0x0e) <= 0x1a - 0x0e
            || byte.wrapping_sub(0x1c) <= 0x1f - 0x1c
            || byte == 0x7f
    };
    head.chunks(SUMMED).map(|chunk| usize::from(chunk.iter().map(|byte| u8::from(is_odd(*byte))).sum::<u8>())).sum()
}

fn is_binary_utf16(units: &[u8], to_unit: fn([u8; 2]) -> u16) -> bool {
    let units = || units.chunks_exact(2).map(|pair| to_unit([pair[0], pair[1]]));
    let controls = units().filter(|unit| is_odd_control(*unit)).count();
    units().any(|unit| unit == 0) || controls * 3 > units().count()
}

/// Whether `head` is UTF-8, except for a character that is cut at its end.
fn is_utf8_head(head: &[u8]) -> bool {
    match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}
