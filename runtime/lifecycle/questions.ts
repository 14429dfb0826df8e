import type { AskedQuestion, AskOutcome, Questions } from '#scheduler/invocations/questions.ts';
import type { Usage } from '#scheduler/invocations/types.ts';
import type { Attempt } from './attempt.ts';
import { failure, refusedByQuota, type Verdict } from './verdict.ts';

const NO_ROOM_TO_ASK: Verdict = failure(
  'output-limit',
  'The invocation and its children have logged as much as they may together, and this question finds no room.',
);

/**
 * Ends an attempt that asks a person, after the attempt has given back everything it held. The invocation then waits without an attempt.
 * Resolves to the final verdict, which is silent when the invocation waits, or to null when the log takes no more events.
 */
export async function waitForPerson(
  questions: Questions,
  { job, epoch, outbox, observed }: Attempt,
  { question, usage, released }: { question: AskedQuestion; usage: () => Usage; released: Promise<void> },
): Promise<Verdict | null> {
  await released;
  if (outbox.end !== null) return null;
  let outcome: AskOutcome | null;
  try {
    outcome = await outbox.finish((seq) => questions.ask(job, epoch, seq, question, usage()));
  } catch (error) {
    return outbox.end === null ? refusedByQuota(error) : null;
  }
  switch (outcome) {
    case 'cancelled':
      return { kind: 'error', code: 'cancelled', message: 'The invocation was cancelled.' };
    case 'full':
      return NO_ROOM_TO_ASK;
    case 'waiting':
      observed?.ended('waiting', '', usage());
      return { kind: 'silent' };
    case 'stale':
    case 'ended':
    case null:
      return { kind: 'silent' };
  }
}
