import { tmpdir, homedir } from 'node:os';
import { join } from 'node:path';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';
import { world } from '#wit/generated/world.ts';
import { buildComponent } from './build/component/build.ts';
import { testArtifact, testProgram } from './testing/components.ts';
import { TestGpuHost } from './testing/gpu-host.ts';
import { TestInferlet } from './testing/inferlet.ts';
import { hostTable } from './host/table.ts';
import { compileWorld } from './lowering/compile.ts';
import { instantiate } from './lowering/instance.ts';
import { SliceRunner } from './lowering/slice-runner.ts';
const service = await import('./grammar/service.ts' as string).catch(() => null);
const table = { ...hostTable };
if (!service) (table as any).runtime = { ...hostTable.runtime, models: (i: any) => (hostTable.runtime!.models as any)(i).map((m: any) => ({ ...m, traits: m.traits.filter((t: string) => t !== 'grammar') })) };
const [entry, ...inputs] = process.argv.slice(2);
const modelDir = join(homedir(), '.cache/pie/models', process.env.MODEL ?? 'stories15m');
const [host, built] = await Promise.all([
  TestGpuHost.start({ model: modelDir, pages: 600, settings: { backend: 'onnx', threads: 1 } }),
  buildComponent(entry!, { store: join(tmpdir(), 'guest-store') }),
]);
try {
  if (!built.ok) throw new Error(JSON.stringify(built));
  console.log('component', built.component.length);
  const program = await testProgram(await testArtifact(built.component));
  const connection = await GpuHostConnection.connect(host.address);
  const tokenizer = await loadTokenizer(modelDir);
  const summary = { ...connection.models[0]! };
  console.log(summary.traits.join());
  const grammars = service ? await (service.openForTest?.() ?? new service.GrammarService()) : undefined;
  const compiled = compileWorld(world, table);
  for (const input of inputs.length ? inputs : ['']) {
    const execution = instantiate(program, compiled, { slices: new SliceRunner(), cpuLimitMs: 60_000 });
    const guest = new TestInferlet(connection, { id: `e2e-${Math.random()}`, pages: 400, model: { tokenizer, summary, ...(grammars && { grammars }) } as never });
    (guest.inferlet.session as any).log = (l: string, m: string) => console.log('LOG', l, m.slice(0, 600));
    execution.guest.context = guest.inferlet;
    const t = performance.now();
    const ending = await execution.start(input);
    console.log((performance.now() - t).toFixed(0), 'ms', JSON.stringify(ending, null, 1).slice(0, 6000).replaceAll('\\"', '"'));
    await guest.end();
    execution.dispose();
  }
  grammars?.close?.();
  connection.close();
} finally {
  await host.stop();
}
