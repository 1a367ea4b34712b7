//! Line numbers that a reader shows before each line, and that are copied with it.

/// What readers put between a number and its line: `read_file`, `cat -n`, `grep -n`.
const SEPARATORS: [&[u8]; 5] = [b" | ", b"\t", b"  ", b": ", b":"];

/// Returns lines without the numbers with which all of them begin, one more each; `None` if they do not. Empty lines may have none.
pub(crate) fn without_line_numbers<'a>(lines: &[&'a [u8]]) -> Option<Vec<&'a [u8]>> {
    SEPARATORS.iter().find_map(|separator| without(lines, separator))
}

fn without<'a>(lines: &[&'a [u8]], separator: &[u8]) -> Option<Vec<&'a [u8]>> {
    let mut next = None;
    let mut rests = Vec::with_capacity(lines.len());
    for line in lines {
        if line.trim_ascii().is_empty() {
            next = next.map(|number: u64| number + 1);
            rests.push(*line);
            continue;
        }
        let (number, rest) = number_of(line, separator)?;
        if next.is_some_and(|next| next != number) {
            return None;
        }
        next = Some(number + 1);
        rests.push(rest);
    }
    // A number alone is more likely a line.
    let has_text = rests.iter().any(|rest| !rest.trim_ascii().is_empty());
    (next.is_some() && has_text).then_some(rests)
}

/// Returns the number with which a line begins, and what comes after the separator.
fn number_of<'a>(line: &'a [u8], separator: &[u8]) -> Option<(u64, &'a [u8])> {
    let text = line.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // No file has more lines than eight digits count.
    let number = std::str::from_utf8(&text[..digits]).ok().filter(|digits| digits.len() <= 8)?.parse().ok()?;
    let rest = &text[digits..];
    // The blanks of an empty line may have been removed.
    let rest = rest.strip_prefix(separator).or_else(|| {
        let empty = rest.strip_prefix(separator.trim_ascii_end())?;
        empty.trim_ascii().is_empty().then_some(empty)
    })?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::without_line_numbers;

    #[test]
    fn numbers_of_readers_are_removed() {
        let table: [(&[&str], Option<&[&str]>); 10] = [
            (&["1  alpha\n", "2    beta\n"], Some(&["alpha\n", "  beta\n"])),
            (&["     9\ta\n", "    10\t\tb\n"], Some(&["a\n", "\tb\n"])),
            (&["     1 | a", "     2 |", "     3 | b"], Some(&["a", "", "b"])),
            (&["12: a", "", "14: b"], Some(&["a", "", "b"])),
            (&["7:a"], Some(&["a"])),
            (&["1  a", "3  b"], None),
            (&["1  a", "b"], None),
            (&["a"], None),
            (&["2\n", "3\n"], None),
            (&[""], None),
        ];
        for (lines, want) in table {
            let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
            let want = want.map(|lines| lines.iter().map(|line| line.as_bytes()).collect::<Vec<_>>());
            assert_eq!(without_line_numbers(&lines), want, "{lines:?}");
        }
    }
}
