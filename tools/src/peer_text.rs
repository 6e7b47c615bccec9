//! Text from another host, made safe for a terminal.

/// The first `limit` characters of a text from the other side. Only printable ASCII is shown
/// unchanged: other characters could control the terminal or falsify the text (escape sequences,
/// marks of writing direction).
pub(crate) fn shown(said: &[u8], limit: usize) -> String {
    let text = String::from_utf8_lossy(said);
    let harmless = |c: char| match c {
        ' '..='~' => c,
        _ => char::REPLACEMENT_CHARACTER,
    };
    let mut shown: String = text.chars().take(limit).map(harmless).collect();
    if text.chars().nth(limit).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_shown_is_short_and_harmless() {
        assert_eq!(shown(b"rdma-ping-0: ABC", 60), "rdma-ping-0: ABC");
        assert_eq!(shown(b"\x1b[2J\xff\n", 60), "\u{fffd}[2J\u{fffd}\u{fffd}");
        let turned = "a\u{202e}b\u{9b}2J";
        assert_eq!(shown(turned.as_bytes(), 60), "a\u{fffd}b\u{fffd}2J");
        assert_eq!(shown(&[b'x'; 61], 60), format!("{}...", "x".repeat(60)));
    }

    proptest! {
        #[test]
        fn nothing_that_drives_a_terminal_is_left(said: Vec<u8>, limit in 0_usize..600) {
            let shown = shown(&said, limit);
            prop_assert!(shown.chars().all(|c| matches!(c, ' '..='~' | char::REPLACEMENT_CHARACTER)));
            prop_assert!(shown.chars().count() <= limit + 3);
        }
    }
}
