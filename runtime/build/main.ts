/**
 * The build program. Usage:
 *   node runtime/build/main.ts component SOURCE OUT [--store DIR] [--json]
 *   node runtime/build/main.ts check SOURCE [--json]
 *   node runtime/build/main.ts module SOURCE OUT.wasm [--json]
 *   node runtime/build/main.ts graph SOURCE OUT.svg [--input FILE.json] [--json]
 *   node runtime/build/main.ts artifact COMPONENT.wasm OUT_DIR [--memory-pages N] [--json]
 *   node runtime/build/main.ts load
 * `load` only loads the code of the artifact stage, so that Node can cache the compiled code. With --json, the output
 * of each other command ends with a line `{"ok": true, …}` or a BuildFailure. The exit code is 0, 1 for a failure, or 2
 * for wrong usage.
 */
import { parseArgs } from 'node:util';
import type { BuildFailure } from './failure-schema.ts';
import { failureFrom } from './outcome.ts';

const USAGE = `usage: main.ts component SOURCE OUT [--store DIR] [--json]
       main.ts check SOURCE [--json]
       main.ts module SOURCE OUT.wasm [--json]
       main.ts graph SOURCE OUT.svg [--input FILE.json] [--json]
       main.ts artifact COMPONENT.wasm OUT_DIR [--memory-pages N] [--json]`;

const { values, positionals } = readArguments();
const [stage, input, output = ''] = positionals;

function readArguments() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        json: { type: 'boolean', default: false },
        store: { type: 'string' },
        input: { type: 'string' },
        'memory-pages': { type: 'string' },
      },
    });
  } catch (error) {
    console.error(`${(error as Error).message}\n${USAGE}`);
    process.exit(2);
  }
}

async function run(from: string, to: string): Promise<{ readonly ok: true; readonly summary: string }> {
  if (stage === 'component') {
    const { runComponentStage } = await import('./component/stage.ts');
    return runComponentStage(from, to, values.store);
  }
  if (stage === 'check') {
    const { runCheckStage } = await import('./component/stage.ts');
    return runCheckStage(from);
  }
  if (stage === 'module') {
    const { runModuleStage } = await import('./native/stage.ts');
    return runModuleStage(from, to);
  }
  if (stage === 'graph') {
    const { runGraphStage } = await import('./graph/evaluate.ts');
    return runGraphStage(from, to, values.input);
  }
  const { runArtifactStage } = await import('./artifact/stage.ts');
  return runArtifactStage(from, to, values['memory-pages']);
}

function failureText(failure: BuildFailure): string {
  const places = (failure.diagnostics ?? []).map(
    ({ file, line, column, text, source }) =>
      `\n${file}:${line}:${column}: ${text}\n  ${source}\n  ${' '.repeat(Math.max(0, column - 1))}^`,
  );
  return `${failure.code}: ${failure.message}${places.join('')}\n${failure.hint}`;
}

if (stage === 'load') {
  await import('./artifact/stage.ts');
} else if (
  !input ||
  !(stage === 'check' || (output && ['component', 'module', 'graph', 'artifact'].includes(stage ?? '')))
) {
  console.error(USAGE);
  process.exitCode = 2;
} else {
  try {
    const result = await run(input, output);
    console.log(values.json ? JSON.stringify(result) : result.summary);
  } catch (error) {
    const failure = failureFrom(error);
    if (values.json) console.log(JSON.stringify(failure));
    else console.error(failureText(failure));
    process.exitCode = 1;
  }
}
