//! Aligned columns for people.

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Lines of `rows` under `head`, each column as wide as its widest cell, two spaces between.
pub fn table(head: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = head
        .iter()
        .enumerate()
        .map(|(column, (title, _))| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| cell.chars().count())
                .chain([title.len()])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let titles: Vec<String> = head.iter().map(|(title, _)| (*title).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&titles).chain(rows) {
        let cells: Vec<String> = row
            .iter()
            .zip(head)
            .zip(&widths)
            .map(|((cell, (_, align)), width)| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Bytes as people read them, in powers of two: `64.0K`, `1.2M`.
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["", "K", "M", "G", "T"] {
        if value < 1024.0 {
            return if unit.is_empty() {
                format!("{count}")
            } else {
                format!("{value:.1}{unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1}P")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let head = [("name", Align::Left), ("n", Align::Right)];
        let rows = [
            vec!["a".into(), "7".into()],
            vec!["longer".into(), "123".into()],
        ];
        assert_eq!(
            table(&head, &rows),
            "name      n\na         7\nlonger  123\n"
        );
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes(1023), "1023");
        assert_eq!(bytes(65_536), "64.0K");
        assert_eq!(bytes(3 << 30), "3.0G");
    }
}
