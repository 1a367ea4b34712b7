//! Encodings that a text names itself: XML, HTML, CSS, and coding lines of Python, Emacs and Vim.

use memchr::memmem;

use super::Encoding;

/// The first bytes that may have a declaration.
const HEAD_BYTES: usize = 1024;

/// Returns the encoding that a text declares at its start, in XML, HTML, CSS, or a coding line as Python, Emacs and Vim read it.
pub fn declared_encoding(bytes: &[u8]) -> Option<Encoding> {
    Encoding::parse(std::str::from_utf8(declared_name(&head_of(bytes))?).ok()?)
}

/// Returns whether a text declares an encoding at its start, be it known or not.
pub(super) fn declares_encoding(bytes: &[u8]) -> bool {
    declared_name(&head_of(bytes)).is_some()
}

fn head_of(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len().min(HEAD_BYTES)].to_ascii_lowercase()
}

fn declared_name(head: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = head.strip_prefix(b"@charset \"") {
        return name_at(rest);
    }
    let text = head.trim_ascii_start();
    // XHTML may say it in a tag instead.
    if let Some(name) = text.strip_prefix(b"<?xml").and_then(|rest| {
        let attributes = &rest[..memchr::memchr(b'>', rest)?];
        name_at(after(attributes, b"encoding")?)
    }) {
        return Some(name);
    }
    if text.starts_with(b"<") {
        let tags = memmem::find_iter(text, b"<meta").map(|at| &text[at..]);
        let attributes = tags.map(|tag| &tag[..memchr::memchr(b'>', tag).unwrap_or(tag.len())]);
        return attributes.filter_map(|tag| after(tag, b"charset")).find_map(name_at);
    }
    head.split(|byte| *byte == b'\n').take(2).find_map(|line| {
        let is_comment = line.trim_ascii_start().starts_with(b"#");
        let is_marked = [&b"-*-"[..], b"vim:", b"vi:"].iter().any(|mark| memmem::find(line, mark).is_some());
        let rest = after(line, b"coding").filter(|_| is_comment || is_marked)?;
        name_at(rest.strip_prefix(b":").or_else(|| rest.strip_prefix(b"="))?)
    })
}

/// What follows the first `word`.
fn after<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    memmem::find(text, word).map(|at| &text[at + word.len()..])
}

/// The name that follows after `=`, blanks and quotes.
fn name_at(text: &[u8]) -> Option<&[u8]> {
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'=' | b'"' | b'\''))?;
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    let length = text[start..].iter().take_while(is_part).count();
    (length > 0).then(|| &text[start..start + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_encoding_is_read() {
        for (head, encoding) in [
            ("<?xml version=\"1.0\" encoding='GB2312'?>", Some(Encoding::Gbk)),
            ("\n<html><head><META http-equiv=x content=\"text/html; charset=Shift_JIS\">", Some(Encoding::ShiftJis)),
            ("<?xml version='1.0'?>\n<html><meta charset=\"big5\"/>", Some(Encoding::Big5)),
            ("\r\n<?XML version = '1.0' encoding = 'windows-1251' standalone='no' ?>", Some(Encoding::Windows1251)),
            ("<meta name=a><meta charset=\"euc-jp\">", Some(Encoding::EucJp)),
            ("@charset \"iso-8859-1\";", Some(Encoding::Windows1252)),
            ("#!/usr/bin/python\n# -*- coding: euc_kr -*-\n", Some(Encoding::EucKr)),
            ("/* -*- coding: cp936 -*- */\n", Some(Encoding::Gbk)),
            ("# vim: set fileencoding=big5 :\n", Some(Encoding::Big5)),
            ("# -*- coding: latin-1 -*-\n", Some(Encoding::Windows1252)),
            ("# -*- coding: iso-8859-15 -*-\n", Some(Encoding::Iso8859_15)),
            ("<?xml version='1.0' encoding='GB18030'?>", Some(Encoding::Gb18030)),
            ("x = 1\ny = 2\n# coding: gbk\n", None),
            ("coding: gbk\n", None),
            ("# coding: nonsense\n", None),
            ("<p>charset=gbk</p>", None),
            ("", None),
        ] {
            assert_eq!(declared_encoding(head.as_bytes()), encoding, "{head}");
        }
    }
}
