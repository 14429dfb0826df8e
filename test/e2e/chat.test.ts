import assert from 'node:assert/strict';
import path from 'node:path';
import { test } from 'node:test';
import { invoke, terminal, text } from '#test/harness/events.ts';
import { Platform, ROOT } from '#test/harness/platform.ts';

test('a chat model with grouped-query attention and a chat template answers the capital of France', async () => {
  await using platform = await Platform.start({ functions: false, env: { PIE_MODEL: 'minimind2-small' } });
  const deploy = await platform.pie(['deploy', path.join(ROOT, 'test/inferlets/chat.ts'), '--name', 'chat', '--json']);
  assert.equal(deploy.code, 0, deploy.stderr);
  const events = await invoke(platform, 'chat', { question: 'What is the capital of France?' });
  assert.equal(terminal(events)?.event, 'result', JSON.stringify(terminal(events)?.data));
  assert.match(text(events), /The capital of France is Paris\./);
});
