"""Bugs in ladders, for the law of the ladder.

    python3 engine/tests/plants/ladders.py FOLDER
    cd FOLDER && EBBTIDE_PLANT=2 cargo test -p ebbtide --test laws bin

What `planting` does with them stands there.
"""
from planting import plant, plant_all

L, B, R = "engine/src/ladder/", "buckets/src/bins/", "engine/src/snapshot/rollup.rs"
plant(1, "measurements are dropped in an edit after that of their bins", L + "decay.rs",
      "        ops.append(&mut self.ops);\n        engine.commit(ops)",
      """        if crate::plant(1) {
            engine.commit(std::mem::take(&mut self.ops))?;
        }
        ops.append(&mut self.ops);
        engine.commit(ops)""")
plant(2, "a coarser rung gets states twice", L + "decay.rs",
      "                bins.merge(&self.bins, |_, _| true);\n                bins\n",
      """                bins.merge(&self.bins, |_, _| true);
                if crate::plant(2) {
                    bins.merge(&self.bins, |_, _| true);
                }
                bins
""")
plant(3, "what comes late is forgotten where its bin is stored already", B + "stored.rs",
      "            self.rows[slot].merge(&of_bins.rows(row));\n            slots.push(slot);",
      """            if crate::plant(3) && self.rows[slot].measurements > 0 {
                slots.push(usize::MAX);
                continue;
            }
            self.rows[slot].merge(&of_bins.rows(row));
            slots.push(slot);""")
plant(3, "", B + "stored.rs",
      "slots.iter().zip(some.drain(..)).for_each(|(slot, state)| add(states, *slot, state));",
      "slots.iter().zip(some.drain(..)).filter(|(slot, _)| **slot != usize::MAX).for_each(|(slot, state)| add(states, *slot, state));")
plant(4, "what rounding takes from a sum is forgotten", B + "state.rs",
      "if self.sum.is_finite() && self.lost.is_finite() {",
      "if !crate::plant(4) && self.sum.is_finite() && self.lost.is_finite() {")
plant(5, "a measurement at the border of two bins counts in the one before", B + "fold.rs",
      ".partition_point(|t| *t <= last)", ".partition_point(|t| *t <= last || (crate::plant(5) && *t == last + 1))")
plant(6, "an average is that of the averages of parts", B + "state.rs",
      "        self.count += other.count;\n        self.sum.add(&other.sum);",
      """        let mean = |of: &State<V>| of.sum.double() / of.count as f64;
        let of_both = (mean(self) + mean(other)) / 2.0;
        self.count += other.count;
        self.sum.add(&other.sum);
        if crate::plant(6) {
            self.sum = V::Sum::of_double(of_both * self.count as f64);
        }""")
plant(6, "", B + "state.rs",
      "    fn add(&mut self, other: &Self);\n",
      "    fn add(&mut self, other: &Self);\n    fn of_double(value: f64) -> Self;\n")
plant(6, "", B + "state.rs", "    fn add(&mut self, (): &()) {}\n", "    fn add(&mut self, (): &()) {}\n\n    fn of_double(_: f64) {}\n")
plant(6, "", B + "state.rs",
      "    fn add(&mut self, other: &i128) {\n", "    fn of_double(value: f64) -> i128 {\n        value as i128\n    }\n\n    fn add(&mut self, other: &i128) {\n")
plant(6, "", B + "state.rs",
      "    fn add(&mut self, other: &Compensated) {\n",
      "    fn of_double(value: f64) -> Compensated {\n        Compensated::of(value)\n    }\n\n    fn add(&mut self, other: &Compensated) {\n")
plant(7, "bins of which several rows are stored are shown once for each", R,
      "let mut limit = first_open(&self.state).min(sealed.unwrap_or(i64::MAX));",
      "if crate::plant(7) {\n            return i64::MAX;\n        }\n        let mut limit = first_open(&self.state).min(sealed.unwrap_or(i64::MAX));")
plant(8, "measurements that are stored still are not looked for", R,
      "let mut limit = first_open(&self.state).min(sealed.unwrap_or(i64::MAX));",
      "let mut limit = if crate::plant(8) { i64::MAX } else { first_open(&self.state).min(sealed.unwrap_or(i64::MAX)) };")
plant(9, "rows of one segment stay together where those of another come in between", B + "join.rs",
      "if let Some(next) = next {", "if let Some(next) = next.filter(|_| !crate::plant(9)) {")

plant_all(["engine", "buckets"])
