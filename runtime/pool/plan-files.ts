import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Plan } from '../lowering/plan.ts';
import { type JcoInstantiate, recordPlan } from '../lowering/record.ts';

/**
 * Plans an artifact's core modules in this process: runs the artifact's glue and the start functions of untrusted code. Throws
 * `UnplannableError`, or the error that prevented the instantiation.
 */
export async function planFiles(directory: string, files: readonly string[]): Promise<Plan> {
  const glue = (await import(pathToFileURL(join(directory, 'app.js')).href)) as { instantiate: JcoInstantiate };
  const modules = await Promise.all(
    files.map(async (name) => {
      const bytes = await readFile(join(directory, name));
      return { name, bytes, module: await WebAssembly.compile(bytes) };
    }),
  );
  return recordPlan(glue.instantiate, modules);
}
