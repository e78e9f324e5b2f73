//! Values of flags that are more than a number.

use std::str::FromStr;

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
    fn ids_are_lists_of_whole_numbers() {
        assert_eq!("1, 2,3".parse(), Ok(IdList(vec![1, 2, 3])));
        assert_eq!("".parse(), Ok(IdList(vec![])));
        for bad in ["1,,2", "1,", "-1", "1.5", "4294967296", "a"] {
            assert!(bad.parse::<IdList>().is_err(), "{bad}");
        }
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
