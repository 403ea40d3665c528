//! A drawing of a key's fingerprint: two drawings differ at a glance where two rows of digits do not.
//!
//! A bishop walks over a field, a diagonal step for each two bits, and each square shows how often
//! it was visited ("The drunken bishop", Loss, Limmer and von Gernler, 2009). The field and its
//! characters are those of OpenSSH.
//!
//! The law: the same bytes give the same drawing. A drawing says less than the bytes, as walks
//! may end alike: it helps to notice another key and proves none.

/// Returns the drawing of some bytes, in a frame; the last line has no line feed.
pub(super) fn draw(bytes: &[u8]) -> String {
    let (mut x, mut y) = START;
    let mut visits = [[0_usize; WIDTH]; HEIGHT];
    // The lowest bits of a byte first.
    let steps = bytes.iter().flat_map(|byte| [0, 2, 4, 6].map(|shift| byte >> shift));
    for step in steps {
        x = if step & 1 == 0 { x.saturating_sub(1) } else { (x + 1).min(WIDTH - 1) };
        y = if step & 2 == 0 { y.saturating_sub(1) } else { (y + 1).min(HEIGHT - 1) };
        visits[y][x] += 1;
    }

    let square = |row: usize, column: usize| match (column, row) {
        at if at == (x, y) => 'E',
        START => 'S',
        _ => char::from(VISITS[visits[row][column].min(VISITS.len() - 1)]),
    };
    let line = |row| format!("|{}|", (0..WIDTH).map(|column| square(row, column)).collect::<String>());
    let frame = format!("+{}+", "-".repeat(WIDTH));
    let lines = std::iter::once(frame.clone()).chain((0..HEIGHT).map(line));
    lines.chain([frame]).collect::<Vec<_>>().join("\n")
}

/// Squares of the field.
const WIDTH: usize = 17;
const HEIGHT: usize = 9;
/// The square where the walk starts, shown as `S`: column and row.
const START: (usize, usize) = (WIDTH / 2, HEIGHT / 2);
/// The character of a square by the number of visits; more visits have the last one.
const VISITS: &[u8; 15] = b" .o+=*BOX@%&#/^";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_drawing_of_the_paper_is_drawn() {
        // The example of the paper, an MD5 sum.
        let bytes = 0xfc94_b0c1_e5b0_987c_5843_9976_97ee_9fb7_u128.to_be_bytes();
        let drawn = "\
+-----------------+
|       .=o.  .   |
|     . *+*. o    |
|      =.*..o     |
|       o + ..    |
|        S o.     |
|         o  .    |
|          .  . . |
|              o .|
|               E.|
+-----------------+";
        assert_eq!(draw(&bytes), drawn);
    }

    #[test]
    fn a_walk_into_a_corner_and_none_at_all_are_drawn() {
        let rows = |bytes: &[u8]| draw(bytes).lines().map(str::to_owned).collect::<Vec<_>>();
        // Steps to the upper left only; the corner is entered again and again.
        assert_eq!(rows(&[0; 16])[1], "|E....            |");
        assert_eq!(rows(&[0xff; 16])[9], "|            ....E|");
        assert_eq!(rows(&[])[5], "|        E        |");
        // Between two squares beside the edge, more often than there are characters.
        assert!(rows(&[&[0; 4][..], &[0x33; 40]].concat())[2].contains('^'));
    }

    proptest! {
        #[test]
        fn a_drawing_is_the_same_again_and_fits_its_frame(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let drawn = draw(&bytes);
            prop_assert_eq!(&drawn, &draw(&bytes));
            let lines: Vec<&str> = drawn.lines().collect();
            prop_assert_eq!(lines.len(), HEIGHT + 2);
            prop_assert!(lines[0] == "+-----------------+" && lines[0] == lines[HEIGHT + 1]);
            for line in &lines[1..=HEIGHT] {
                let inner = line.strip_prefix('|').and_then(|line| line.strip_suffix('|'));
                prop_assert!(inner.is_some_and(|inner| {
                    inner.len() == WIDTH && inner.bytes().all(|byte| VISITS.contains(&byte) || b"SE".contains(&byte))
                }), "{}", line);
            }
            prop_assert_eq!(drawn.matches('E').count(), 1);
        }
    }
}
