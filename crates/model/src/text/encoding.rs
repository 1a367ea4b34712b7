//! Decodes bytes to characters and encodes them again without loss.

mod declaration;
mod likelihood;

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};

use serde::{Deserialize, Serialize};

pub use declaration::declared_encoding;

/// The byte order mark of UTF-8.
const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";
/// Bytes that are examined to distinguish the older encodings.
const GUESS_BYTES: usize = 64 * 1024;

/// The encoding of a text.
///
/// All encodings except UTF-8 and UTF-16 are read where the text declares them, or else guessed from the bytes. They are reported
/// only if encoding the text again results in the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum Encoding {
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "utf-8-bom")]
    Utf8Bom,
    #[serde(rename = "utf-16le")]
    Utf16Le,
    #[serde(rename = "utf-16be")]
    Utf16Be,
    #[serde(rename = "windows-1252")]
    Windows1252,
    #[serde(rename = "windows-1250")]
    Windows1250,
    #[serde(rename = "windows-1251")]
    Windows1251,
    #[serde(rename = "windows-1253")]
    Windows1253,
    #[serde(rename = "windows-1254")]
    Windows1254,
    #[serde(rename = "windows-1255")]
    Windows1255,
    #[serde(rename = "windows-1256")]
    Windows1256,
    #[serde(rename = "windows-1257")]
    Windows1257,
    #[serde(rename = "windows-1258")]
    Windows1258,
    #[serde(rename = "windows-874")]
    Windows874,
    #[serde(rename = "iso-8859-2")]
    Iso8859_2,
    #[serde(rename = "iso-8859-3")]
    Iso8859_3,
    #[serde(rename = "iso-8859-4")]
    Iso8859_4,
    #[serde(rename = "iso-8859-5")]
    Iso8859_5,
    #[serde(rename = "iso-8859-6")]
    Iso8859_6,
    #[serde(rename = "iso-8859-7")]
    Iso8859_7,
    #[serde(rename = "iso-8859-8")]
    Iso8859_8,
    #[serde(rename = "iso-8859-8-i")]
    Iso8859_8I,
    #[serde(rename = "iso-8859-10")]
    Iso8859_10,
    #[serde(rename = "iso-8859-13")]
    Iso8859_13,
    #[serde(rename = "iso-8859-14")]
    Iso8859_14,
    #[serde(rename = "iso-8859-15")]
    Iso8859_15,
    #[serde(rename = "iso-8859-16")]
    Iso8859_16,
    #[serde(rename = "koi8-r")]
    Koi8R,
    #[serde(rename = "koi8-u")]
    Koi8U,
    Ibm866,
    Macintosh,
    XMacCyrillic,
    #[serde(rename = "shift_jis")]
    ShiftJis,
    EucJp,
    EucKr,
    Gbk,
    Gb18030,
    Big5,
}

/// A decoded text and its encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The text without a byte order mark, with its line endings unchanged.
    pub text: String,
    /// The encoding, for [`encode`].
    pub encoding: Encoding,
}

/// The encoding of a whole text; `None` if the bytes are not text.
///
/// Text is UTF-8 without NUL, valid UTF-16 after a byte order mark, or text that is valid in an older encoding and has no
/// control characters.
pub fn detect_encoding(bytes: &[u8]) -> Option<Encoding> {
    view(bytes).map(|(_, encoding)| encoding)
}

/// Decodes a whole text; `None` if the bytes are not text.
///
/// [`encode`] returns the same bytes for the result.
pub fn decode(bytes: &[u8]) -> Option<Decoded> {
    view(bytes).map(|(text, encoding)| Decoded { text: text.into_owned(), encoding })
}

/// Decodes a whole text that has this encoding; `None` if it has not. An empty text has every encoding.
pub fn decode_as(bytes: &[u8], encoding: Encoding) -> Option<String> {
    if bytes.is_empty() {
        return Some(String::new());
    }
    let text = match encoding {
        Encoding::Utf8 => std::str::from_utf8(bytes).ok()?.to_owned(),
        Encoding::Utf8Bom | Encoding::Utf16Le | Encoding::Utf16Be => {
            decode(bytes).filter(|decoded| decoded.encoding == encoding)?.text
        }
        older => older.standard()?.decode_without_bom_handling_and_without_replacement(bytes)?.into_owned(),
    };
    (encode(&text, encoding)? == bytes).then_some(text)
}

/// Whether `encoding`, in which a text was read, is only a guess.
pub fn is_guessed(bytes: &[u8], encoding: Encoding) -> bool {
    encoding.standard().is_some() && declared_encoding(bytes).map(Encoding::base) != Some(encoding.base())
}

/// Returns whether a guess is likely to be right: the text is long enough, declares no other encoding, and nothing else is as
/// plausible.
pub fn is_likely(bytes: &[u8], encoding: Encoding) -> bool {
    // What a text declares may be an encoding that is not known here.
    if declaration::declares_encoding(bytes) && is_guessed(bytes, encoding) {
        return false;
    }
    let encoding = encoding.base();
    let guess = detector_of(bytes).guess(None, Utf8Detection::Deny);
    if Some(guess) != encoding.standard() {
        return false;
    }
    // In the languages of windows-1252 most letters are ASCII; in all others, letters that are not follow each other.
    if encoding == Encoding::Windows1252 {
        let runs = || bytes.chunk_by(|one, other| one.is_ascii() == other.is_ascii()).filter(|run| !run[0].is_ascii());
        let alone = runs().filter(|run| run.len() == 1).count();
        return alone * 10 >= runs().count() * 9;
    }
    likelihood::is_most_plausible(bytes, encoding)
}

/// Encodes `text`, with the byte order mark that belongs to `encoding`; `None` if `encoding` lacks one of its
/// characters.
pub fn encode(text: &str, encoding: Encoding) -> Option<Vec<u8>> {
    let utf16 = |mark: [u8; 2], to_bytes: fn(u16) -> [u8; 2]| {
        mark.into_iter().chain(text.encode_utf16().flat_map(to_bytes)).collect()
    };
    match encoding {
        Encoding::Utf8 => Some(text.as_bytes().to_vec()),
        Encoding::Utf8Bom => Some([UTF8_BOM, text.as_bytes()].concat()),
        Encoding::Utf16Le => Some(utf16([0xff, 0xfe], u16::to_le_bytes)),
        Encoding::Utf16Be => Some(utf16([0xfe, 0xff], u16::to_be_bytes)),
        older => encode_older(text, older.standard()?),
    }
}

/// Returns the characters of a whole text, borrowed if its bytes are UTF-8.
pub(crate) fn view(bytes: &[u8]) -> Option<(Cow<'_, str>, Encoding)> {
    if let Some(units) = bytes.strip_prefix(b"\xff\xfe") {
        return Some((Cow::Owned(utf16(units, u16::from_le_bytes)?), Encoding::Utf16Le));
    }
    if let Some(units) = bytes.strip_prefix(b"\xfe\xff") {
        return Some((Cow::Owned(utf16(units, u16::from_be_bytes)?), Encoding::Utf16Be));
    }
    if memchr::memchr(0, bytes).is_some() {
        return None;
    }
    let (marked, encoding) = match bytes.strip_prefix(UTF8_BOM) {
        Some(rest) => (rest, Encoding::Utf8Bom),
        None => (bytes, Encoding::Utf8),
    };
    match std::str::from_utf8(marked) {
        Ok(text) => Some((Cow::Borrowed(text), encoding)),
        Err(_) => older(bytes).map(|(text, encoding)| (Cow::Owned(text), encoding)),
    }
}

fn utf16(bytes: &[u8], to_unit: fn([u8; 2]) -> u16) -> Option<String> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let text: String = char::decode_utf16(pairs.iter().map(|pair| to_unit(*pair))).collect::<Result<_, _>>().ok()?;
    (rest.is_empty() && !text.contains('\0')).then_some(text)
}

/// Decodes text in an older encoding: the most likely one that encodes the text to the same bytes.
fn older(bytes: &[u8]) -> Option<(String, Encoding)> {
    let control = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f);
    if bytes.iter().any(control) || crate::kind::is_binary(&bytes[..bytes.len().min(8192)]) {
        return None;
    }
    let read_as = |encoding: Encoding| {
        let text = encoding.standard()?.decode_without_bom_handling_and_without_replacement(bytes)?;
        (encode(&text, encoding)? == bytes).then(|| (text.into_owned(), encoding))
    };
    let read_with_additions = |encoding: Encoding| {
        let additions = (encoding == Encoding::Gbk).then_some(Encoding::Gb18030);
        read_as(encoding).or_else(|| additions.and_then(read_as))
    };
    declared_encoding(bytes).and_then(read_with_additions).or_else(|| {
        let guess = detector_of(bytes).guess(None, Utf8Detection::Deny);
        let likely = Encoding::OLDER.into_iter().find(|encoding| encoding.standard() == Some(guess));
        // In windows-1252 every byte is a character, so encoding the text again always results in the same bytes.
        [likely, Some(Encoding::Windows1252)].into_iter().flatten().find_map(read_with_additions)
    })
}

fn detector_of(bytes: &[u8]) -> EncodingDetector {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    // A file may begin with a long ASCII text, which does not distinguish the encodings.
    let first = encoding_rs::Encoding::ascii_valid_up_to(bytes);
    let sample = &bytes[first.saturating_sub(GUESS_BYTES / 4)..];
    // A sample may end inside a character, which at the end of a text would rule its encoding out.
    detector.feed(&sample[..sample.len().min(GUESS_BYTES)], sample.len() <= GUESS_BYTES);
    detector
}

fn encode_older(text: &str, standard: &'static encoding_rs::Encoding) -> Option<Vec<u8>> {
    let (bytes, _, unmappable) = standard.encode(text);
    // Some encodings write two characters as the same bytes.
    let back = standard.decode_without_bom_handling_and_without_replacement(&bytes)?;
    (!unmappable && back == text).then(|| bytes.into_owned())
}

impl Encoding {
    /// Returns the encoding with this name; `None` if it is not known. Usual other names, such as `latin1`, are known too.
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase();
        let standard = |name: &str| encoding_rs::Encoding::for_label(name.as_bytes());
        match name.as_str() {
            "utf-8-bom" | "utf-8-sig" | "utf8-bom" => Some(Self::Utf8Bom),
            "cp932" | "ms932" => Some(Self::ShiftJis),
            "cp936" => Some(Self::Gbk),
            "cp949" => Some(Self::EucKr),
            "cp950" => Some(Self::Big5),
            // Such as `euc_kr` and `latin-1`.
            _ => match standard(&name)
                .or_else(|| standard(&name.replace('_', "-")))
                .or_else(|| standard(&name.replace(['_', '-'], "")))?
            {
                known if known == encoding_rs::UTF_8 => Some(Self::Utf8),
                known if known == encoding_rs::UTF_16LE => Some(Self::Utf16Le),
                known if known == encoding_rs::UTF_16BE => Some(Self::Utf16Be),
                known => Self::OLDER.into_iter().find(|encoding| encoding.standard() == Some(known)),
            },
        }
    }

    /// Returns its name, as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf8Bom => "UTF-8 with a byte order mark",
            Self::Utf16Le | Self::Utf16Be => "UTF-16",
            older => older.standard().map_or("", encoding_rs::Encoding::name),
        }
    }

    /// Returns its name in lower case, as answers and inputs have it.
    pub fn label(self) -> String {
        self.name().to_ascii_lowercase()
    }

    /// Whether it is neither UTF-8 nor UTF-16.
    pub fn is_older(self) -> bool {
        self.standard().is_some()
    }

    /// Returns GBK for GB 18030, which adds characters of four bytes to it, and any other encoding itself.
    fn base(self) -> Self {
        if self == Self::Gb18030 { Self::Gbk } else { self }
    }

    /// Returns the maximum length in UTF-8, without a byte order mark, of a text that has at most `bytes` in this encoding.
    pub fn max_text_bytes(self, bytes: u64) -> u64 {
        match self {
            Self::Utf8 | Self::Utf8Bom => bytes,
            Self::Utf16Le | Self::Utf16Be => bytes.saturating_mul(3) / 2,
            // One byte may be a character of three.
            _ => bytes.saturating_mul(3),
        }
    }

    /// Returns the minimum length in this encoding of a text that has `bytes` in UTF-8.
    pub fn min_bytes_of(self, bytes: u64) -> u64 {
        match self {
            Self::Utf8 | Self::Utf8Bom => bytes,
            Self::Utf16Le | Self::Utf16Be => bytes.saturating_mul(2).div_ceil(3),
            _ => bytes.div_ceil(3),
        }
    }

    /// Every encoding that is neither UTF-8 nor UTF-16.
    const OLDER: [Self; 34] = [
        Self::Windows1252,
        Self::Windows1250,
        Self::Windows1251,
        Self::Windows1253,
        Self::Windows1254,
        Self::Windows1255,
        Self::Windows1256,
        Self::Windows1257,
        Self::Windows1258,
        Self::Windows874,
        Self::Iso8859_2,
        Self::Iso8859_3,
        Self::Iso8859_4,
        Self::Iso8859_5,
        Self::Iso8859_6,
        Self::Iso8859_7,
        Self::Iso8859_8,
        Self::Iso8859_8I,
        Self::Iso8859_10,
        Self::Iso8859_13,
        Self::Iso8859_14,
        Self::Iso8859_15,
        Self::Iso8859_16,
        Self::Koi8R,
        Self::Koi8U,
        Self::Ibm866,
        Self::Macintosh,
        Self::XMacCyrillic,
        Self::ShiftJis,
        Self::EucJp,
        Self::EucKr,
        Self::Gbk,
        Self::Gb18030,
        Self::Big5,
    ];

    /// The encoding as the Encoding Standard defines it; `None` for UTF-8 and UTF-16, which need no tables.
    fn standard(self) -> Option<&'static encoding_rs::Encoding> {
        match self {
            Self::Utf8 | Self::Utf8Bom | Self::Utf16Le | Self::Utf16Be => None,
            Self::Windows1252 => Some(encoding_rs::WINDOWS_1252),
            Self::Windows1250 => Some(encoding_rs::WINDOWS_1250),
            Self::Windows1251 => Some(encoding_rs::WINDOWS_1251),
            Self::Windows1253 => Some(encoding_rs::WINDOWS_1253),
            Self::Windows1254 => Some(encoding_rs::WINDOWS_1254),
            Self::Windows1255 => Some(encoding_rs::WINDOWS_1255),
            Self::Windows1256 => Some(encoding_rs::WINDOWS_1256),
            Self::Windows1257 => Some(encoding_rs::WINDOWS_1257),
            Self::Windows1258 => Some(encoding_rs::WINDOWS_1258),
            Self::Windows874 => Some(encoding_rs::WINDOWS_874),
            Self::Iso8859_2 => Some(encoding_rs::ISO_8859_2),
            Self::Iso8859_3 => Some(encoding_rs::ISO_8859_3),
            Self::Iso8859_4 => Some(encoding_rs::ISO_8859_4),
            Self::Iso8859_5 => Some(encoding_rs::ISO_8859_5),
            Self::Iso8859_6 => Some(encoding_rs::ISO_8859_6),
            Self::Iso8859_7 => Some(encoding_rs::ISO_8859_7),
            Self::Iso8859_8 => Some(encoding_rs::ISO_8859_8),
            Self::Iso8859_8I => Some(encoding_rs::ISO_8859_8_I),
            Self::Iso8859_10 => Some(encoding_rs::ISO_8859_10),
            Self::Iso8859_13 => Some(encoding_rs::ISO_8859_13),
            Self::Iso8859_14 => Some(encoding_rs::ISO_8859_14),
            Self::Iso8859_15 => Some(encoding_rs::ISO_8859_15),
            Self::Iso8859_16 => Some(encoding_rs::ISO_8859_16),
            Self::Koi8R => Some(encoding_rs::KOI8_R),
            Self::Koi8U => Some(encoding_rs::KOI8_U),
            Self::Ibm866 => Some(encoding_rs::IBM866),
            Self::Macintosh => Some(encoding_rs::MACINTOSH),
            Self::XMacCyrillic => Some(encoding_rs::X_MAC_CYRILLIC),
            Self::ShiftJis => Some(encoding_rs::SHIFT_JIS),
            Self::EucJp => Some(encoding_rs::EUC_JP),
            Self::EucKr => Some(encoding_rs::EUC_KR),
            Self::Gbk => Some(encoding_rs::GBK),
            Self::Gb18030 => Some(encoding_rs::GB18030),
            Self::Big5 => Some(encoding_rs::BIG5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_known_by_the_name_that_answers_have() {
        for encoding in Encoding::OLDER {
            assert_eq!(serde_json::to_value(encoding).unwrap(), encoding.label());
            assert_eq!(Encoding::parse(&encoding.label()), Some(encoding), "{encoding:?}");
        }
    }
}
