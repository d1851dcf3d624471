//! Changing one value of a policy file and nothing else: comments and layout stay.

use sluicegate_config::Problems;
use toml_edit::{DocumentMut, Item, TableLike, Value};

use crate::rule::{Mode, Policy};

/// A policy's text with another mode of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Edited {
    /// The new text; the old one where the rule has this mode already.
    pub text: String,
    /// Position of the rule, from 0.
    pub rule: usize,
    /// The policy in the new text.
    pub policy: Policy,
}

/// Why a rule's mode was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditError {
    /// The text has errors: nothing of it would be taken over.
    Bad(Problems),
    /// There is no such rule, or several.
    NoSuchRule(String),
}

impl std::fmt::Display for EditError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bad(problems) => write!(f, "{problems}"),
            Self::NoSuchRule(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for EditError {}

impl Policy {
    /// Position of the rule with this name, or with this number, which counts from 1.
    ///
    /// # Errors
    /// There is none, or several have the name; says which there are.
    pub fn find_rule(&self, wanted: &str) -> Result<usize, String> {
        let has_name = |index: &usize| self.rules[*index].name.as_deref() == Some(wanted);
        let named: Vec<usize> = (0..self.rules.len()).filter(has_name).collect();
        match named.as_slice() {
            [one] => return Ok(*one),
            [] => {}
            several => {
                let numbers: Vec<String> = several.iter().map(|n| (n + 1).to_string()).collect();
                return Err(format!(
                    "{} rules are called \"{wanted}\": say which by its number ({})",
                    several.len(),
                    numbers.join(", ")
                ));
            }
        }
        let number = wanted.parse::<usize>().ok();
        let index = number.and_then(|number| number.checked_sub(1));
        if let Some(index) = index.filter(|index| *index < self.rules.len()) {
            return Ok(index);
        }
        let labels = self.rules.iter().enumerate();
        let labels: Vec<String> = labels.map(|(index, rule)| rule.label(index)).collect();
        Err(match labels.as_slice() {
            [] => format!("no rule \"{wanted}\": the policy has no rules"),
            _ => format!("no rule \"{wanted}\"; there are {}", labels.join(", ")),
        })
    }
}

/// Gives the rule called `rule`, or with this number from 1, another mode. `file` is the text's
/// name in messages.
///
/// # Errors
/// The text has errors, or there is no such rule.
pub fn set_mode(file: &str, text: &str, rule: &str, mode: Mode) -> Result<Edited, EditError> {
    let policy = Policy::parse(file, text).map_err(EditError::Bad)?;
    let index = policy.find_rule(rule).map_err(EditError::NoSuchRule)?;
    if policy.rules[index].mode == mode {
        return Ok(Edited {
            text: text.to_owned(),
            rule: index,
            policy,
        });
    }
    let unreadable = |reason: String| EditError::NoSuchRule(format!("{file}: {reason}"));
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error| unreadable(format!("{error}")))?;
    let table = rule_table(&mut document, index)
        .ok_or_else(|| unreadable(format!("rule {} is no table to be edited", index + 1)))?;
    write_mode(table, &mode.to_string());
    let text = document.to_string();
    let policy = Policy::parse(file, &text).map_err(EditError::Bad)?;
    Ok(Edited {
        text,
        rule: index,
        policy,
    })
}

/// `[[rule]]` or an inline table of `rule = [ … ]`.
fn rule_table(document: &mut DocumentMut, index: usize) -> Option<&mut dyn TableLike> {
    match document.get_mut("rule")? {
        Item::ArrayOfTables(tables) => Some(tables.get_mut(index)?),
        Item::Value(Value::Array(values)) => Some(values.get_mut(index)?.as_inline_table_mut()?),
        _ => None,
    }
}

fn write_mode(table: &mut dyn TableLike, mode: &str) {
    match table.get_mut("mode").and_then(Item::as_value_mut) {
        Some(value) => {
            let decor = value.decor().clone();
            *value = Value::from(mode);
            *value.decor_mut() = decor;
        }
        None => {
            table.insert("mode", toml_edit::value(mode));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# ours\ntrusted = [ '10.0.0.0/8' ]   # inside\n\n[[rule]]  # first\nname = 'bulk'\nmode = 'observe'   # for now\nbeta=0.5\n\n# the rest\n[[rule]]\nalgorithm = \"cubic\"\n";

    fn edited(rule: &str, mode: Mode) -> String {
        set_mode("p.toml", TEXT, rule, mode).unwrap().text
    }

    #[test]
    fn only_the_mode_changes() {
        for rule in ["bulk", "1"] {
            let expected = TEXT.replace("mode = 'observe'   #", "mode = \"enforce\"   #");
            assert_eq!(edited(rule, Mode::Enforce), expected);
        }
        assert_eq!(edited("bulk", Mode::Observe), TEXT);
    }

    #[test]
    fn a_rule_without_a_mode_gets_one() {
        let text = edited("2", Mode::Off);
        assert_eq!(text, format!("{TEXT}mode = \"off\"\n"));
        let inline = "rule = [{ name = 'a' }, { algorithm = 'cubic' }]\n";
        let edited = set_mode("p.toml", inline, "a", Mode::Enforce).unwrap();
        assert_eq!(edited.policy.rules[0].mode, Mode::Enforce);
        assert!(edited.text.ends_with("{ algorithm = 'cubic' }]\n"));
    }

    #[test]
    fn what_there_is_not_is_said_with_what_there_is() {
        let error = set_mode("p.toml", TEXT, "bulky", Mode::Off).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no rule \"bulky\"; there are rule 1 \"bulk\", rule 2"
        );
        for none in ["0", "3"] {
            assert!(set_mode("p.toml", TEXT, none, Mode::Off).is_err());
        }
        let twice = "[[rule]]\nname='a'\n[[rule]]\nname='a'\n";
        let error = set_mode("p.toml", twice, "a", Mode::Off).unwrap_err();
        assert!(
            error.to_string().contains("by its number (1, 2)"),
            "{error}"
        );
        let bad = set_mode("p.toml", "[[rule]]\nbeta=7\n", "1", Mode::Off).unwrap_err();
        assert!(bad.to_string().starts_with("p.toml:2:6: rule[0].beta"));
    }
}
