import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { TEST_MODEL, TestGpuHost } from '../../testing/gpu-host.ts';
import { describeHosts } from './gpu-hosts.ts';

test('describeHosts lists the models of a GPU host, also after the host is lost', async () => {
  const host = await TestGpuHost.start({ pages: 32 });
  const connection = await GpuHostConnection.connect(host.address, { name: 'gpu-host-1' });
  try {
    const [description] = describeHosts([connection]);
    const [{ backend, precision, device } = {}] = connection.models;
    const [model] = description?.models ?? [];
    assert.deepEqual(model, { name: TEST_MODEL, backend, precision, device, pageSize: model?.pageSize, pageCount: 32 });
    assert.equal(device?.name, 'CPU');
    assert.deepEqual(
      [description?.name, description?.connected, description?.hostId],
      ['gpu-host-1', true, connection.hostId],
    );
    assert.ok(Math.abs((description?.connectedAt ?? 0) - Date.now()) < 60_000);
    const lost = new Promise((resolve) => connection.onLost(resolve));
    await host.kill();
    await lost;
    const { lostAt } = connection;
    assert.ok((lostAt ?? 0) >= (description?.connectedAt ?? 0));
    assert.deepEqual(describeHosts([connection]), [{ ...description, connected: false, lostAt }]);
  } finally {
    connection.close();
    await host.stop();
  }
});
