import { mkdtemp, rm } from 'node:fs/promises';
import { SourceMap } from 'node:module';
import { join } from 'node:path';
import { componentize as run } from 'componentize-qjs';
import type { Diagnostic } from '../failure-schema.ts';
import { BuildError } from '../outcome.ts';
import type { Bundle } from './bundle.ts';
import { writeContract } from './contract.ts';
import { slim } from './slim.ts';

/** A place in the bundle, as the engine's stack traces write it. */
const PLACE = /componentize-qjs:user\.js:(\d+):(\d+)/;

/**
 * Compiles a bundle into a component that contains the QuickJS engine. The compiler, componentize-qjs, evaluates the module in a sandbox
 * and snapshots its state. Throws BuildError with the place in the source when the module cannot be evaluated.
 * @param directory folder for the compiler's temporary input
 */
export async function componentize(bundle: Bundle, directory: string): Promise<Uint8Array> {
  const scratch = await mkdtemp(join(directory, '.contract-'));
  try {
    const witPath = await writeContract(bundle.interfaces, scratch);
    return await withEngine(witPath, bundle.code);
  } catch (error) {
    throw explain(error instanceof Error ? error.message : String(error), bundle);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/**
 * Makes a component from the QuickJS engine in its state after it has evaluated a module. The engine is optimised for size, which saves 0.55 of
 * 1.9 MB but costs speed: pure computation takes 1.2 to 1.6 times as long, and a waiting call takes 7 µs, not 5 (`runtime/lowering/bench.ts`).
 * These 2 µs are little beside a device step of a few ms.
 */
export async function withEngine(witPath: string, jsSource: string): Promise<Uint8Array> {
  const { component } = await run({ witPath, world: 'inferlet', jsSource, stubWasi: true, optSize: true });
  return slim(component);
}

function explain(message: string, bundle: Bundle): BuildError {
  const call = /unknown import: `pie:inferlet\/([\w-]+)@[^#]+#([^`]+)`/.exec(message);
  if (call) {
    return new BuildError(
      'build-failed',
      `The module calls ${call[1]} ${call[2]} while it loads.`,
      'Modules are evaluated once, at build time, without a host: move the call into run().',
    );
  }
  if (message.includes('call stack exhausted')) {
    return new BuildError(
      'build-failed',
      'The module recurses without end while it loads.',
      'Modules are evaluated once, at build time: move the work into run().',
    );
  }
  if (message.includes('blocking on a promise')) {
    return new BuildError(
      'build-failed',
      'The module awaits a promise at its top level that never settles.',
      'Modules are evaluated once, at build time, without a host: await inside run().',
    );
  }
  const text =
    /(?:evaluation|module): (?:Error: )?([^\n]*)/s.exec(
      message.replace(/^.*user JavaScript module: /s, 'module: '),
    )?.[1] ?? message;
  const diagnostic = placeOf(message, text.replace(/^Failed to [^:]*: (Error: )?/, ''), bundle);
  const faultText = diagnostic
    ? `${diagnostic.file}:${diagnostic.line}:${diagnostic.column}: ${diagnostic.text}`
    : text;
  return new BuildError(
    'build-failed',
    `The module fails while it loads: ${faultText}`,
    'Modules are evaluated once, at build time: correct the source at that place, or move the work into run().',
    diagnostic ? [diagnostic] : [],
  );
}

/** The place in the user's files where the engine stopped; null when the message names none. */
function placeOf(message: string, text: string, bundle: Bundle): Diagnostic | null {
  const match = PLACE.exec(message);
  if (!match) return null;
  const payload = JSON.parse(bundle.map) as { sourcesContent?: (string | null)[]; sources: string[] };
  const entry = new SourceMap(payload as ConstructorParameters<typeof SourceMap>[0]).findEntry(
    Number(match[1]) - 1,
    Number(match[2]) - 1,
  );
  if (!('originalLine' in entry)) return null;
  const { originalSource, originalLine, originalColumn } = entry;
  const content = payload.sourcesContent?.[payload.sources.indexOf(originalSource)] ?? '';
  return {
    file: originalSource,
    line: originalLine + 1,
    column: originalColumn + 1,
    text,
    source: content.split('\n')[originalLine] ?? '',
  };
}
