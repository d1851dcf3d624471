//! `skip` of `[sweep]`: combinations that a sweep leaves out.
//!
//! ```text
//! skip = term ("and" term)*
//! term = axis ("==" | "!=") (axis | value)
//! ```
//! What stands on the right is an axis if there is one of that name, else a value. A value may
//! stand in double quotes, and then is no axis.

use sluicegate_config::{problem::Complaint, table::nearest};

use super::Dimension;

/// Combinations for which all terms hold.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Skip {
    terms: Vec<Term>,
}

/// An axis has what the operand says, or something else.
#[derive(Clone, Debug, PartialEq)]
struct Term {
    axis: String,
    is_equal: bool,
    operand: Operand,
}

/// What the value of an axis is compared with.
#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Axis(String),
    Value(String),
}

impl Skip {
    /// Parses a text, whose axes and values are among `dimensions`; those of variants are
    /// [checked](Self::check) later.
    ///
    /// # Errors
    /// A text that the grammar does not allow, an unknown axis or value, an axis that is compared
    /// with itself.
    pub fn parse(text: &str, dimensions: &[Dimension]) -> Result<Self, Complaint> {
        let term = |term| read_term(text, term, dimensions);
        let terms = text.split(" and ").map(term).collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }

    /// That the variants that it names are there.
    ///
    /// # Errors
    /// An unknown variant.
    pub fn check(&self, variants: &Dimension) -> Result<(), Complaint> {
        let mut named = self.terms.iter().filter(|t| t.axis == variants.name);
        named.try_for_each(|term| check_value(variants, &term.operand))
    }

    /// Whether it holds of these values of axes; a term with an axis that has none does not.
    fn holds<'a>(&'a self, value: &dyn Fn(&str) -> Option<&'a str>) -> bool {
        self.terms.iter().all(|term| {
            let other = match &term.operand {
                Operand::Axis(other) => value(other),
                Operand::Value(other) => Some(other.as_str()),
            };
            let both = value(&term.axis).zip(other);
            both.is_some_and(|(own, other)| (own == other) == term.is_equal)
        })
    }
}

/// Whether a combination is left out: values as positions, and the variant, if it is decided.
pub(super) fn any(
    skips: &[Skip],
    dimensions: &[Dimension],
    values: &[usize],
    variant: Option<&str>,
) -> bool {
    let value = |axis: &str| {
        if axis == "variant" {
            return variant;
        }
        let mut own = dimensions.iter().zip(values);
        let (dimension, value) = own.find(|(dimension, _)| dimension.name == axis)?;
        Some(dimension.values[*value].as_str())
    };
    skips.iter().any(|skip| skip.holds(&value))
}

/// Whether every cell with these values of some axes is left out.
pub(super) fn any_at<'a>(
    skips: &'a [Skip],
    fixed: impl Iterator<Item = &'a (String, String)> + Clone,
) -> bool {
    let value = |axis: &str| {
        let (_, value) = fixed.clone().find(|(name, _)| name == axis)?;
        Some(value.as_str())
    };
    skips.iter().any(|skip| skip.holds(&value))
}

fn read_term(text: &str, term: &str, dimensions: &[Dimension]) -> Result<Term, Complaint> {
    let (equal, unequal) = (term.split_once("=="), term.split_once("!="));
    let Some((axis, other)) = equal.or(unequal) else {
        let reason = format!("`{}` in `{text}` is no AXIS == VALUE", term.trim());
        let advice = "write for example \"pfc == off and cm == qcn\"";
        return Err(Complaint::new(reason, advice));
    };
    let (axis, other) = (axis.trim(), other.trim());
    let names: Vec<&str> = dimensions.iter().map(|d| d.name.as_str()).collect();
    let operand = match names.contains(&other) {
        true => Operand::Axis(other.to_owned()),
        false => Operand::Value(other.trim_matches('"').to_owned()),
    };
    if axis == other {
        let reason = format!("`{axis}` is compared with itself");
        return Err(Complaint::new(reason, "name another axis, or a value"));
    }
    match dimensions.iter().find(|d| d.name == axis) {
        Some(dimension) => check_value(dimension, &operand)?,
        None if axis == "variant" => {}
        None => {
            let reason = format!("there is no axis \"{axis}\"");
            let near = nearest(axis, &names);
            let advice = format!("known axes: {}, variant{near}", names.join(", "));
            return Err(Complaint::new(reason, advice));
        }
    }
    Ok(Term {
        axis: axis.to_owned(),
        is_equal: equal.is_some(),
        operand,
    })
}

fn check_value(dimension: &Dimension, operand: &Operand) -> Result<(), Complaint> {
    let Operand::Value(value) = operand else {
        return Ok(());
    };
    let values: Vec<&str> = dimension.values.iter().map(String::as_str).collect();
    if values.contains(&value.as_str()) {
        return Ok(());
    }
    let reason = format!("axis {} has no value \"{value}\"", dimension.name);
    let advice = format!("it has {}{}", values.join(", "), nearest(value, &values));
    Err(Complaint::new(reason, advice))
}
