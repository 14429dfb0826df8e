/** `npm run build:cuda`: compiles the native backend for a card. `--help` lists its other targets. */
import path from 'node:path';
import { readArguments, refuseArguments, runMain } from '#infra/arguments.ts';
import { ADDON_FILE } from './addon.ts';
import {
  ARCHITECTURES,
  BuildError,
  build,
  cardCompiler,
  DEFAULT_ARCH,
  emulationCompiler,
  MissingCompilerError,
  type Target,
} from './build-cache.ts';

const USAGE = `Usage: npm run build:cuda -- [options]

Compiles the CUDA backend with nvcc, for the platform to load. Objects are cached and compiled again only when their sources change.

  --arch ARCH   the card's architecture, ${DEFAULT_ARCH} by default: ${Object.entries(ARCHITECTURES)
    .map(([name, cards]) => `${name} (${cards})`)
    .join(', ')}
  --emulate     build for this machine's CPU with the tests' CUDA emulation, instead of a card
  --sanitize    with --emulate: every wrong address and undefined operation ends the run; slow
  --tests       build the C++ tests instead of the addon
  --harness     build the program that checks and measures on a card, instead of the addon
  --out FILE    destination (by default the addon for a card goes where the platform looks for it, others into the cache; the path is printed)
  --jobs N      compilations at the same time (as many as cores)
  --registers   show each kernel's registers, spills and shared memory as reported by ptxas
  --quiet       print nothing but the path
  --help        print this
`;

await runMain(main, [BuildError, MissingCompilerError]);

async function main(): Promise<void> {
  const { values } = readArguments(USAGE, {
    options: {
      arch: { type: 'string', default: DEFAULT_ARCH },
      emulate: { type: 'boolean', default: false },
      sanitize: { type: 'boolean', default: false },
      tests: { type: 'boolean', default: false },
      harness: { type: 'boolean', default: false },
      out: { type: 'string' },
      jobs: { type: 'string' },
      registers: { type: 'boolean', default: false },
      quiet: { type: 'boolean', default: false },
    },
  });
  if (values.sanitize && !values.emulate) refuseArguments(USAGE, '--sanitize needs --emulate.');
  if (values.registers && values.emulate) refuseArguments(USAGE, '--registers needs nvcc, so it excludes --emulate.');
  if (values.tests && values.harness) refuseArguments(USAGE, 'one build makes --tests or --harness, not both.');
  const jobs = values.jobs === undefined ? undefined : Number(values.jobs);
  if (jobs !== undefined && !(Number.isInteger(jobs) && jobs > 0))
    refuseArguments(USAGE, `--jobs ${values.jobs} is not a number of compilations.`);
  const target: Target = values.tests ? 'tests' : values.harness ? 'harness' : 'addon';
  const say = (text: string) => {
    if (!values.quiet) console.log(text);
  };
  const compiler = values.emulate ? emulationCompiler(values.sanitize, values.arch) : cardCompiler(values.arch);
  const release = /release [\d.]+/.exec(compiler.version)?.[0] ?? compiler.version.split('\n')[0];
  say(`Building with ${compiler.program} (${release})${values.emulate ? ', emulated' : ` for ${values.arch}`} …`);
  const startMs = performance.now();
  const out = values.out ?? (target === 'addon' && !values.emulate ? ADDON_FILE : undefined);
  const file = await build(target, {
    emulated: values.emulate,
    sanitize: values.sanitize,
    arch: values.arch,
    ...(out === undefined ? {} : { out: path.resolve(out) }),
    ...(jobs !== undefined && { jobs }),
    ...(values.registers && { extra: ['-Xptxas', '-v'] }),
    onCompiled: (source, done, of, warnings) => {
      say(`[${done}/${of}] ${path.relative(path.join(import.meta.dirname, 'native'), source)}`);
      if (warnings !== '') say(warnings);
    },
  });
  say(`Made in ${((performance.now() - startMs) / 1000).toFixed(1)} s:`);
  console.log(file);
}
