//! Means of rows of bf16, for new rows of embedding tables.

use rayon::prelude::*;

/// The mean of each group of rows, in bf16, rounded to the nearest, ties to even.
///
/// Numbers are added up as 64-bit floats in the order of the group, divided, and rounded to 32 bits and then to bf16, as
/// numpy does it. `rows` are rows of `width` numbers, `groups` the numbers of rows of each group, and `places` the rows of
/// one group after the other. An empty group has a row of zeros. None if the numbers do not fit together.
#[must_use]
pub fn bf16_means(rows: &[u8], width: usize, groups: &[usize], places: &[usize]) -> Option<Vec<u8>> {
    let row_bytes = width.checked_mul(2).filter(|&bytes| bytes > 0)?;
    let count = rows.len() / row_bytes;
    let total = groups.iter().try_fold(0usize, |sum, &group| sum.checked_add(group))?;
    if count * row_bytes != rows.len() || total != places.len() || places.iter().any(|&place| place >= count) {
        return None;
    }
    let mut rest = places;
    let groups: Vec<&[usize]> = groups
        .iter()
        .map(|&group| {
            let places;
            (places, rest) = rest.split_at(group);
            places
        })
        .collect();
    let mut means = vec![0; groups.len().checked_mul(row_bytes)?];
    means
        .par_chunks_exact_mut(row_bytes)
        .zip(groups)
        .for_each_init(|| vec![0f64; width], |sums, (mean, places)| mean_of(rows, places, sums, mean));
    Some(means)
}

fn mean_of(rows: &[u8], places: &[usize], sums: &mut [f64], mean: &mut [u8]) {
    if places.is_empty() {
        return;
    }
    sums.fill(0.0);
    for (number, &place) in places.iter().enumerate() {
        let row = &rows[place * mean.len()..(place + 1) * mean.len()];
        for (sum, bytes) in sums.iter_mut().zip(row.chunks_exact(2)) {
            let value = f64::from(f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16));
            // The first is not added to 0: that would turn -0 into 0.
            *sum = if number == 0 { value } else { *sum + value };
        }
    }
    let divisor = places.len() as f64;
    for (sum, bytes) in sums.iter().zip(mean.chunks_exact_mut(2)) {
        bytes.copy_from_slice(&bf16((sum / divisor) as f32).to_le_bytes());
    }
}

fn bf16(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7FC0;
    }
    let bits = value.to_bits();
    // Adding half of the removed bits, less one if the last kept bit is even, rounds ties to even.
    ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect()
    }

    #[test]
    fn means_are_those_of_the_groups() {
        let rows = [row(&[1.0, -0.0]), row(&[3.0, -0.0]), row(&[f32::NAN, f32::INFINITY])].concat();
        let means = bf16_means(&rows, 2, &[2, 0, 1, 1], &[0, 1, 2, 1]).unwrap();
        let expected = [row(&[2.0, -0.0]), row(&[0.0, 0.0]), row(&[f32::NAN, f32::INFINITY]), row(&[3.0, -0.0])];
        assert_eq!(means, expected.concat());
    }

    #[test]
    fn numbers_that_do_not_fit_together_are_refused() {
        let rows = row(&[1.0, 2.0]);
        for (rows, width, groups, places) in [
            (&rows[..], 0, &[][..], &[][..]),
            (&rows[..3], 2, &[1], &[0]),
            (&rows[..], 2, &[1], &[1]),
            (&rows[..], 2, &[2], &[0]),
            (&rows[..], 2, &[usize::MAX, 2], &[0]),
        ] {
            assert_eq!(bf16_means(rows, width, groups, places), None);
        }
    }
}
