//! The training loop: takes the most frequent pair of the language that is worst off, adds its merge, and updates the
//! words and pairs that it changes, in all texts.

use rustc_hash::FxHashSet;

use super::balance::Balance;
use super::changes::Replacer;
use super::model::Model;
use super::pairs::{Candidate, Place};
use super::task::{Callbacks, RefusedPair, Task, LEARNED_STEP};
use super::text::{Known, Text};
use super::texts::EncodedTexts;
use crate::bpe::pair_key;
use crate::error::Result;
use crate::stop::Stop;

/// What the speed of training depends on; the result does not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parallelism {
    pub(super) threads: usize,
    /// From how many places on a pair is replaced on all cores.
    pub(super) parallel_from: usize,
}

impl Default for Parallelism {
    fn default() -> Self {
        Self { threads: rayon::current_num_threads(), parallel_from: 4096 }
    }
}

/// The state of training.
pub(super) struct Learner<'b, P> {
    pub(super) model: Model<'b>,
    texts: Vec<Text<P>>,
    balance: Balance,
    /// Pairs that must not be merged, as it turned out when they were the most frequent.
    refused: FxHashSet<u64>,
    /// The pairs of preserved text.
    preserved: FxHashSet<u64>,
    /// The refused pairs that would have been merged but for the preserved text, in order.
    pub(super) refused_pairs: Vec<RefusedPair>,
    replacer: Replacer<P>,
    threads: usize,
}

impl<'b, P: Place> Learner<'b, P> {
    pub(super) fn new(model: Model<'b>, encoded: EncodedTexts, task: &Task, parallelism: Parallelism) -> Self {
        let EncodedTexts { words, n_languages, balance, preserved } = encoded;
        let known = if words.len() > 1 { Known::All } else { Known::Frequent(task.max_candidates.max(1)) };
        // Parallel text only measures: none of its pairs is a candidate.
        let min_count = |index: usize| if index < n_languages { task.min_count } else { u64::MAX };
        let texts = words.into_iter().zip(0..).map(|(words, index)| Text::new(words, min_count(index), known));
        Self {
            model,
            texts: texts.collect(),
            balance,
            refused: FxHashSet::default(),
            preserved,
            refused_pairs: Vec::new(),
            replacer: Replacer::new(parallelism.threads, parallelism.parallel_from),
            threads: parallelism.threads,
        }
    }

    pub(super) fn learn(&mut self, task: &Task, callbacks: &mut dyn Callbacks, stop: &Stop) -> Result<()> {
        if self.texts.len() > 1 {
            // All at once: a merge that is learned for one text is applied to the others.
            for text in &mut self.texts {
                text.count_pairs(&self.model, &self.refused, self.threads, stop)?;
            }
        }
        while self.model.n_new() < task.tokens {
            let Some((language, best, string)) = self.next(task, callbacks, stop)? else { break };
            self.append(language, &best, string, task, stop)?;
            if self.model.n_new() % LEARNED_STEP == 0 {
                callbacks.learned(self.model.n_new());
            }
        }
        callbacks.learned(self.model.n_new());
        // The last call of `allow` may have asked to stop.
        stop.check()
    }

    /// The most frequent pair that may be merged of the language that is worst off, and the string of its product.
    /// Languages that have none are passed over.
    fn next(
        &mut self,
        task: &Task,
        callbacks: &mut dyn Callbacks,
        stop: &Stop,
    ) -> Result<Option<(usize, Candidate, String)>> {
        for language in self.balance.worst_first(&self.texts) {
            let text = &mut self.texts[language];
            while let Some(best) = text.pop(&self.model, &self.refused, self.threads, stop)? {
                let key = pair_key(best.pair.0, best.pair.1);
                if !self.refused.contains(&key) {
                    let string: String = [&*best.left, &*best.right].concat();
                    if !self.model.is_unwanted(best.pair, &string, task) && callbacks.allow(&string) {
                        if !self.preserved.contains(&key) {
                            return Ok(Some((language, best, string)));
                        }
                        let (left, right) = best.pair;
                        let after = self.model.learned.len();
                        self.refused_pairs.push(RefusedPair { left, right, count: best.count, after });
                    }
                    self.refused.insert(key);
                }
                text.pairs.table.remove(&key);
            }
        }
        Ok(None)
    }

    /// Appends a merge and applies it to every word that has its pair.
    fn append(&mut self, language: usize, best: &Candidate, string: String, task: &Task, stop: &Stop) -> Result<()> {
        let appended = self.model.append(best, string, language as u32, task)?;
        self.balance.add(language);
        for text in &mut self.texts {
            let places = text.pairs.remove(best.pair);
            stop.check()?;
            if appended.may_merge_further {
                text.merge_further(&self.model, &self.refused, (best.pair, places), (self.threads, stop))?;
            } else {
                text.replace(&self.model, &mut self.replacer, (best.pair, places), appended.product);
            }
        }
        Ok(())
    }
}
