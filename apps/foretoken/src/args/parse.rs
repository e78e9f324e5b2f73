//! Values of flags, and what is said of values that can not be.

use std::fmt::Display;
use std::str::FromStr;

/// A whole number type with its largest value.
pub(super) trait Whole: FromStr + Display {
    const MAX: Self;
}

impl Whole for u32 {
    const MAX: Self = Self::MAX;
}

impl Whole for u64 {
    const MAX: Self = Self::MAX;
}

impl Whole for usize {
    const MAX: Self = Self::MAX;
}

/// Parses a count that may be 0.
pub(super) fn whole<T: Whole>(s: &str) -> Result<T, String> {
    s.parse().map_err(|_| format!("use a whole number from 0 to {}", T::MAX))
}

/// Parses a positive count.
pub(super) fn positive(s: &str) -> Result<usize, String> {
    s.parse().ok().filter(|&n| n > 0).ok_or_else(|| "use a whole number above 0".to_owned())
}

/// Parses a size of memory: bytes, or a number of `KiB`, `MiB`, `GiB` or `TiB`.
pub(super) fn bytes(s: &str) -> Result<u64, String> {
    const UNITS: [(&str, u32); 5] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("B", 0)];
    let unit = UNITS.iter().find_map(|(unit, shift)| Some((s.strip_suffix(unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((s, 0));
    // Numbers that a float rounds are past what matters.
    let number: Option<f64> = number.trim().parse().ok();
    let size = number.map(|number| number * (1u64 << shift) as f64);
    let size = size.filter(|size| *size >= 1.0 && *size < u64::MAX as f64);
    size.map(|size| size as u64).ok_or_else(|| "use a size such as 800MiB or 24GiB".to_owned())
}

/// Parses the id of a token; whether the model has it is seen later.
pub(super) fn token_id(s: &str) -> Result<u32, String> {
    s.trim().parse().map_err(|_| format!("use a token id, a whole number from 0 to {}", u32::MAX))
}

/// Token ids, comma-separated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdList(pub(crate) Vec<u32>);

impl FromStr for IdList {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if s.trim().is_empty() {
            return Ok(Self(Vec::new()));
        }
        let ids = s.split(',').map(|id| {
            let id = id.trim();
            id.parse().map_err(|_| format!("'{id}' is not a token id; use 1,2,3"))
        });
        Ok(Self(ids.collect::<Result<_, String>>()?))
    }
}

/// `ID=BIAS`, the bias a number or `-inf`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LogitBias {
    pub(crate) id: u32,
    pub(crate) bias: f32,
}

impl FromStr for LogitBias {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let parsed = s.split_once('=').and_then(|(id, bias)| {
            Some(Self { id: id.trim().parse().ok()?, bias: bias.trim().parse().ok()? })
        });
        parsed.ok_or_else(|| "use ID=BIAS, for example 42=-1.5 or 42=-inf".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = ["1", "512B", "200MiB", "1.5GiB", "2 KiB"].map(|s| bytes(s).unwrap());
        assert_eq!(sizes, [1, 512, 200 << 20, 3 << 29, 2048]);
        for bad in ["", "0", "-1GiB", "MiB", "5GB", "1e30", "NaN", "inf", "99999999TiB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_are_lists_of_whole_numbers() {
        assert_eq!("1, 2,3".parse(), Ok(IdList(vec![1, 2, 3])));
        assert_eq!("".parse(), Ok(IdList(vec![])));
        for bad in ["1,,2", "1,", "-1", "1.5", "4294967296", "a"] {
            assert!(bad.parse::<IdList>().is_err(), "{bad}");
        }
    }

    #[test]
    fn counts_say_their_range() {
        assert_eq!((whole("0"), whole("4294967295")), (Ok(0u32), Ok(u32::MAX)));
        assert_eq!(whole("18446744073709551615"), Ok(u64::MAX));
        for bad in ["-1", "4294967296", "x", ""] {
            let said = whole::<u32>(bad).unwrap_err();
            assert_eq!(said, "use a whole number from 0 to 4294967295");
            assert!(token_id(bad).unwrap_err().contains("token id"), "{bad}");
        }
        assert!(positive("0").is_err() && positive("-1").is_err());
    }

    #[test]
    fn biases_name_a_token() {
        assert_eq!("7=-1.5".parse(), Ok(LogitBias { id: 7, bias: -1.5 }));
        assert_eq!("7=-inf".parse::<LogitBias>().map(|b| b.bias), Ok(f32::NEG_INFINITY));
        for bad in ["7", "=1", "x=1", "7=", "-7=1"] {
            assert!(bad.parse::<LogitBias>().is_err(), "{bad}");
        }
    }
}
