//! The bytes of a written text: a file that is replaced keeps its encoding, byte order mark and line endings.

use std::borrow::Cow;

use model::{Decoded, Encoding, LineEnding, Refusal};

use super::NewLineEnding;
use crate::tool::input::not_encodable;
use crate::tools::edits::{TextEdit, WholeText};

impl WholeText {
    /// Returns the bytes of the content in the form of the file that has the bytes `present`, unless the call names another form, and
    /// what the caller has to know about it.
    ///
    /// # Errors
    ///
    /// `UNSUPPORTED_BINARY` if the content has characters that the encoding that the call names lacks.
    pub(super) fn in_form_of(
        &self,
        edit: &TextEdit,
        present: Option<&[u8]>,
    ) -> Result<(Vec<u8>, Vec<String>), Refusal> {
        let present = present.and_then(model::decode);
        let mut warnings = Vec::new();
        let (has_mark, content) =
            self.content.strip_prefix('\u{feff}').map_or((false, self.content.as_str()), |content| (true, content));
        let text = match (self.line_ending, &present) {
            (Some(NewLineEnding::Lf), _) => Cow::Owned(content.replace("\r\n", "\n")),
            (Some(NewLineEnding::Crlf), _) => Cow::Owned(content.replace("\r\n", "\n").replace('\n', "\r\n")),
            (None, Some(present)) => {
                if LineEnding::of(&present.text) == LineEnding::Lf && content.contains("\r\n") {
                    warnings.push("the line endings stay LF, as in the file; lineEnding=crlf changes them".to_owned());
                }
                Cow::Owned(model::keep_line_endings(&present.text, content))
            }
            (None, None) => Cow::Borrowed(content),
        };
        if let Some(encoding) = edit.encoding {
            let bytes = model::encode(&text, encoding);
            return Ok((bytes.ok_or_else(|| not_encodable("`content`", &edit.path, encoding))?, warnings));
        }
        let kept = present.map_or(Encoding::Utf8, |Decoded { encoding, .. }| encoding);
        // A text may say itself that it has another encoding from now on.
        let declared = model::declared_encoding(content.as_bytes()).filter(|_| kept.is_older());
        let encoding = match declared.unwrap_or(kept) {
            Encoding::Utf8 if has_mark => Encoding::Utf8Bom,
            encoding => encoding,
        };
        let bytes = model::encode(&text, encoding).unwrap_or_else(|| {
            let name = encoding.label();
            warnings.push(format!(
                "the file is UTF-8 now: the content has characters that {name}, its encoding before, lacks"
            ));
            text.as_bytes().to_vec()
        });
        Ok((bytes, warnings))
    }
}
