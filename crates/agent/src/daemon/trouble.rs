//! Failures that come again and again, each worth one line.

use std::{collections::BTreeMap, fmt::Display};

/// By what has failed, the error that was said last.
#[derive(Debug, Default)]
pub(super) struct Troubles(BTreeMap<String, String>);

impl Troubles {
    /// Whether this error of `what` was not said yet, or another one since.
    pub(super) fn is_news(&mut self, what: impl Display, error: &str) -> bool {
        let before = self.0.insert(what.to_string(), error.to_owned());
        before.as_deref() != Some(error)
    }

    /// `what` works. Whether it did not before.
    pub(super) fn is_over(&mut self, what: impl Display) -> bool {
        self.0.remove(&what.to_string()).is_some()
    }

    /// Whether `what` has failed and does not work yet.
    pub(super) fn has(&self, what: impl Display) -> bool {
        self.0.contains_key(&what.to_string())
    }

    /// Says what has failed, once for each error; the result where it worked.
    pub(super) fn hear<T>(&mut self, what: &str, result: anyhow::Result<T>) -> Option<T> {
        match result {
            Ok(value) => {
                if self.is_over(what) {
                    tracing::info!("{what}: it works again");
                }
                Some(value)
            }
            Err(error) => {
                let error = format!("{error:#}");
                if self.is_news(what, &error) {
                    tracing::warn!("{what}: {error}; it is tried again");
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_news_until_it_is_said_and_again_when_it_was_over() {
        let mut troubles = Troubles::default();
        assert!(troubles.is_news("a", "full") && !troubles.is_news("a", "full"));
        assert!(troubles.is_news("a", "gone") && troubles.is_news(7, "gone"));
        assert!(troubles.has("a") && troubles.is_over("a") && !troubles.is_over("a"));
        assert!(!troubles.has("a") && troubles.is_news("a", "gone"));
        assert_eq!(troubles.hear("b", Err::<(), _>(anyhow::anyhow!("x"))), None);
        assert_eq!(troubles.hear("b", Ok(1)), Some(1));
        assert!(!troubles.has("b"));
    }
}
