/**
 * Plans an artifact and measures launches of it: `node examine-main.ts ARTIFACT_DIRECTORY`. Prints an `ExamineReply` as one line of JSON.
 * Without a directory, the program only loads its code, which fills its code cache.
 * It runs the artifact's glue and untrusted start functions, so `examineArtifact` starts this program confined, once per artifact.
 */
import { readdir } from 'node:fs/promises';
import { UnplannableError } from '../lowering/record.ts';
import type { ExamineReply } from './examine.ts';
import { measureArtifact, planFiles } from './measure.ts';

const [directory] = process.argv.slice(2);

async function examine(directory: string): Promise<ExamineReply> {
  try {
    const files = (await readdir(directory)).filter((name) => name.endsWith('.wasm'));
    const plan = await planFiles(directory, files);
    return { plan, starts: await measureArtifact(directory, plan) };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return error instanceof UnplannableError ? { unplannable: message } : { error: message };
  }
}

if (directory !== undefined)
  process.stdout.write(`${JSON.stringify(await examine(directory))}\n`, () => process.exit(0));
