import { copyFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { buildComponent } from '../builder.ts';
import { defineCommand } from '../command.ts';
import { Failure } from '../failure.ts';
import { bytes, duration, quoted } from '../format.ts';
import { findFunction } from '../function-source.ts';

export const build = defineCommand({
  name: 'build',
  summary: 'Build a component without deploying it',
  arguments: [
    {
      name: 'source',
      help: 'a folder with a pie.json, or a .ts, .js, .c or .rs file (default: the current folder)',
      required: false,
    },
  ],
  options: [{ flags: '-o, --out <file>', help: "file to write (default: the function's name with .wasm)" }],
  examples: [{ line: 'pie build hello.ts -o hello.wasm', does: 'builds a component from one file' }],
  async run({ args: [target = '.'], options, terminal }) {
    const source = findFunction(target, undefined);
    const out = path.resolve(options.out ?? `${source.manifest.name}.wasm`);
    if (path.resolve(source.entry) === out) {
      throw source.kind === 'component'
        ? new Failure(`${target} is a component already.`, { advice: `Deploy it: \`pie deploy ${target}\`.` })
        : new Failure(`The component would replace ${target}.`, { advice: 'Name another file with --out.' });
    }
    const shownPath = path.relative(process.cwd(), out);
    if (source.kind === 'component') {
      copyFileSync(source.entry, out);
      const { size } = statSync(out);
      terminal.print(`${shownPath}  ${bytes(size)}`);
      terminal.value({ file: out, bytes: size, buildMs: null, cached: null, notes: [] });
      terminal.note(`${target} is a component already: it was copied.`);
      return 0;
    }
    const progress = terminal.progress(`Building ${target}`);
    let built: Awaited<ReturnType<typeof buildComponent>>;
    try {
      built = await buildComponent(source.entry, out);
    } catch (error) {
      progress.clear();
      throw error;
    }
    progress.done(`Built ${target} in ${duration(built.buildMs)}${built.cached ? ' (nothing had changed)' : ''}`);
    terminal.print(`${shownPath}  ${bytes(built.bytes)}`);
    const { notes, cached } = built;
    terminal.value({ file: out, bytes: built.bytes, buildMs: Math.round(built.buildMs), cached, notes });
    for (const note of notes) terminal.note(`note: ${note}`);
    terminal.note(`Next: pie deploy ${quoted(shownPath)} --name ${source.manifest.name}`);
    return 0;
  },
});
