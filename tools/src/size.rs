//! Sizes, counts and durations as people write them.

use std::str::FromStr;
use std::time::Duration;

/// Parses `64`, `64K`, `1M` or `2G` (powers of 1024) as bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is not a size; write for example 64, 64K or 1M"))?;
    let shift = match unit
        .to_ascii_uppercase()
        .trim_end_matches("IB")
        .trim_end_matches('B')
    {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => {
            return Err(format!(
                "{unit:?} is no unit of size; use none, K, M or G (KB and KiB are K, 1024 bytes)"
            ));
        }
    };
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text} is more than this machine can count"))
}

/// Parses a TCP port.
pub(crate) fn parse_port(text: &str) -> Result<u16, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is no port; write a number from 0 to 65535"))
}

/// Parses a positive count.
pub(crate) fn parse_count<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a possible count; write for example 1000"))
}

/// Parses `500ms`, `5s` or `5` (seconds) as a duration longer than zero.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "{text:?} is not a duration longer than zero; write for example 500ms, 5s, or 5 for seconds"
        )
    };
    let (digits, scale) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    match Duration::try_from_secs_f64(number * scale) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        Ok(_) | Err(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(parse_bytes("64"), Ok(64));
        assert_eq!(parse_bytes("64K"), Ok(65536));
        assert_eq!(parse_bytes("1MiB"), Ok(1 << 20));
        assert_eq!(parse_bytes("2g"), Ok(2 << 30));
        for wrong in [
            "",
            "K",
            "-1",
            "1.5K",
            "64X",
            "99999999999999999999",
            "99999999999G",
        ] {
            assert!(parse_bytes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn texts_say_what_is_taken() {
        assert_eq!(parse_port("18515"), Ok(18515));
        for wrong in ["ssh", "65536", "-1", ""] {
            let said = parse_port(wrong).unwrap_err();
            assert!(said.ends_with("write a number from 0 to 65535"), "{said}");
        }
        for same in ["64K", "64KB", "64KiB", "64kb"] {
            assert_eq!(parse_bytes(same), Ok(65536));
        }
        let said = parse_bytes("64Q").unwrap_err();
        assert!(said.contains("\"Q\" is no unit of size; use none, K, M or G (KB and KiB"));
        assert!(
            parse_duration("5m")
                .unwrap_err()
                .contains("or 5 for seconds")
        );
    }

    #[test]
    fn durations_are_seconds_unless_they_say_otherwise() {
        assert_eq!(parse_duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("20ms"), Ok(Duration::from_millis(20)));
        for wrong in ["", "0", "-1s", "5m", "inf", "nan", "ms"] {
            assert!(parse_duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
