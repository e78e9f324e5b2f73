//! A date out of a count of seconds.

use std::fmt::Write;

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Formats a time, in UTC, given in seconds since 1970. Knows the letters that
/// templates use; a `-` before a letter drops its padding.
///
/// # Errors
/// The letter that is not known.
pub(super) fn strftime(format: &str, seconds: u64) -> Result<String, char> {
    let (year, month, day, day_of_year) = date(seconds / 86_400);
    let weekday = (seconds / 86_400 + 4) % 7;
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let name = |names: &[&'static str], at: u64| names.get(at as usize).copied().unwrap_or("");
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut letter = chars.next().unwrap_or('%');
        let padded = letter != '-';
        if !padded {
            letter = chars.next().unwrap_or('-');
        }
        let (number, width) = match letter {
            'Y' => (year, 4),
            'y' => (year % 100, 2),
            'm' => (month, 2),
            'd' => (day, 2),
            'j' => (day_of_year, 3),
            'H' => (hour, 2),
            'I' => ((hour + 11) % 12 + 1, 2),
            'M' => (minute, 2),
            'S' => (second, 2),
            'w' => (weekday, 1),
            'f' => (0, 6),
            _ => {
                match letter {
                    'A' => out.push_str(name(&DAYS, weekday)),
                    'a' => out.extend(name(&DAYS, weekday).chars().take(3)),
                    'B' => out.push_str(name(&MONTHS, month - 1)),
                    'b' | 'h' => out.extend(name(&MONTHS, month - 1).chars().take(3)),
                    'p' => out.push_str(if hour < 12 { "AM" } else { "PM" }),
                    'Z' => out.push_str("UTC"),
                    'z' => out.push_str("+0000"),
                    'F' => out.push_str(&strftime("%Y-%m-%d", seconds)?),
                    'T' => out.push_str(&strftime("%H:%M:%S", seconds)?),
                    'e' => {
                        let _ = write!(out, "{day:2}");
                    }
                    '%' => out.push('%'),
                    _ => return Err(letter),
                }
                continue;
            }
        };
        let width = if padded { width } else { 1 };
        let _ = write!(out, "{number:0width$}");
    }
    Ok(out)
}

/// Year, month, day and day of the year (all from 1) of a day counted from
/// 1970-01-01 in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64, u64) {
    // Count from 0000-03-01, so that a leap day is the last of its year; 400 years
    // have 146,097 days.
    let since = days.saturating_add(719_468);
    let (era, of_era) = (since / 146_097, since % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let before = if month <= 2 { of_year - 306 } else { of_year + 60 + u64::from(leap) - 1 };
    (year, month, day, before + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times and texts of Python's `datetime.strftime`.
    #[test]
    fn known_times() {
        let all = "%Y-%m-%d %H:%M:%S %a %A %b %B %d %j %y %I %p %w %%";
        for (seconds, want) in [
            (0, "1970-01-01 00:00:00 Thu Thursday Jan January 01 001 70 12 AM 4 %"),
            (951_782_400, "2000-02-29 00:00:00 Tue Tuesday Feb February 29 060 00 12 AM 2 %"),
            (951_868_800, "2000-03-01 00:00:00 Wed Wednesday Mar March 01 061 00 12 AM 3 %"),
            (1_735_689_599, "2024-12-31 23:59:59 Tue Tuesday Dec December 31 366 24 11 PM 2 %"),
            (1_780_001_234, "2026-05-28 20:47:14 Thu Thursday May May 28 148 26 08 PM 4 %"),
            (4_107_542_400, "2100-03-01 00:00:00 Mon Monday Mar March 01 060 00 12 AM 1 %"),
        ] {
            assert_eq!(strftime(all, seconds).unwrap(), want);
        }
        assert_eq!(
            strftime("%-d %-m %e %F %T %Z%z", 5).unwrap(),
            "1 1  1 1970-01-01 00:00:05 UTC+0000"
        );
        assert_eq!(strftime("%q", 0), Err('q'));
        assert_eq!(strftime("100%", 0).unwrap(), "100%");
        assert!(strftime("%Y", u64::MAX).is_ok());
    }
}
