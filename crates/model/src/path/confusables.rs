//! Folds names to a form that look-alikes share, so that a rule for a name also applies to names that look like it.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Names up to this length are folded on the stack; no file system allows longer ones.
const STACK_BYTES: usize = 256;

/// Folds a name to the form that its look-alikes share: compatibility form, lower case, without invisible characters,
/// control characters and accents, and with ASCII letters in place of similar letters of other scripts.
pub fn fold_name(name: &str) -> String {
    let visible = |c: &char| !(c.is_control() || is_ignorable(*c) || is_combining_mark(*c));
    // Capitals are replaced before lower-casing: a Greek capital Nu looks like N, its small letter like v.
    let latin = name.nfkd().filter(visible).map(to_ascii);
    // Lower-casing can restore what the first pass removed: İ becomes i with a dot above.
    latin.flat_map(char::to_lowercase).nfkd().filter(visible).map(to_ascii).collect()
}

/// Calls `then` with the folded `name`. Does not allocate if the name is ASCII.
pub(crate) fn with_folded<T>(name: &str, then: impl FnOnce(&str) -> T) -> T {
    if name.bytes().all(|byte| matches!(byte, b' '..=b'@' | b'['..=b'~')) {
        return then(name);
    }
    let mut buffer = [0_u8; STACK_BYTES];
    if !name.is_ascii() || name.len() > STACK_BYTES {
        return then(&fold_name(name));
    }
    let mut length = 0;
    for byte in name.bytes().filter(|byte| !byte.is_ascii_control()) {
        buffer[length] = byte.to_ascii_lowercase();
        length += 1;
    }
    then(std::str::from_utf8(&buffer[..length]).unwrap_or_default())
}

/// Whether `c` is invisible: a default ignorable code point of Unicode.
pub(crate) fn is_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// The ASCII character that `c` looks like, or `c` itself.
pub(crate) fn to_ascii(c: char) -> char {
    if c.is_ascii() {
        return c;
    }
    match c {
        'а' | 'А' | 'α' | 'Α' | 'ɑ' | 'ᴀ' | 'Ꭺ' => 'a',
        'В' | 'в' | 'Β' | 'ʙ' | 'ᏼ' | 'Ᏼ' | 'Ь' | 'ь' => 'b',
        'с' | 'С' | 'ϲ' | 'Ϲ' | 'ς' | 'ᴄ' | 'Ꮯ' => 'c',
        'ԁ' | 'ᴅ' | 'Ꭰ' | 'Ԁ' => 'd',
        'е' | 'Е' | 'є' | 'ε' | 'Ε' | 'ᴇ' | 'Ꭼ' | 'ҽ' => 'e',
        'ғ' | 'Ғ' | 'ꜰ' | 'ƒ' | 'Ϝ' | 'ϝ' => 'f',
        'ɡ' | 'ց' | 'Ԍ' | 'ԍ' | 'ɢ' | 'Ꮐ' => 'g',
        'һ' | 'Һ' | 'Н' | 'н' | 'Η' | 'ʜ' | 'Ꮋ' | 'հ' => 'h',
        'і' | 'І' | 'ι' | 'Ι' | 'ı' | 'ɪ' | 'ɩ' | 'Ꭵ' => 'i',
        'ј' | 'Ј' | 'ϳ' | 'ᴊ' | 'Ꭻ' | 'ȷ' => 'j',
        'к' | 'К' | 'κ' | 'Κ' | 'ᴋ' | 'Ꮶ' => 'k',
        'ӏ' | 'Ӏ' | 'ǀ' | 'ʟ' | 'Ꮮ' | 'ⅼ' | 'ł' | 'Ł' => 'l',
        'м' | 'М' | 'Μ' | 'ᴍ' | 'Ꮇ' => 'm',
        'п' | 'η' | 'Ν' | 'ɴ' | 'ո' | 'ռ' => 'n',
        'о' | 'О' | 'ο' | 'Ο' | 'σ' | 'ᴏ' | 'օ' | 'Օ' | 'ø' | 'Ø' => 'o',
        'р' | 'Р' | 'ρ' | 'Ρ' | 'ᴘ' | 'Ꮲ' => 'p',
        'ԛ' | 'Ԛ' | 'գ' | 'զ' => 'q',
        'г' | 'ʀ' | 'Ꭱ' | 'Ꮢ' | 'ᴦ' => 'r',
        'ѕ' | 'Ѕ' | 'ꜱ' | 'Ꮪ' | 'ՙ' | 'ƽ' => 's',
        'т' | 'Т' | 'τ' | 'Τ' | 'ᴛ' | 'Ꭲ' => 't',
        'υ' | 'ս' | 'Ս' | 'ᴜ' | 'ʋ' | 'μ' => 'u',
        'ѵ' | 'Ѵ' | 'ν' | 'ᴠ' | 'Ꮩ' => 'v',
        'ԝ' | 'Ԝ' | 'ω' | 'ѡ' | 'ᴡ' | 'Ꮃ' => 'w',
        'х' | 'Х' | 'χ' | 'Χ' => 'x',
        'у' | 'У' | 'ү' | 'Ү' | 'γ' | 'Υ' | 'ʏ' | 'Ꭹ' => 'y',
        'Ζ' | 'ᴢ' | 'Ꮓ' => 'z',
        '\u{3002}' | '\u{6d4}' | '\u{701}' | '\u{702}' | '\u{a4f8}' | '\u{660}' => '.',
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{2043}' => '-',
        _ => c,
    }
}
