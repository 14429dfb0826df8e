import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isPublicAddress } from './reach.ts';

test('isPublicAddress accepts public addresses and refuses private, reserved and malformed ones', () => {
  for (const address of [
    '1.1.1.1',
    '8.8.8.8',
    '172.15.0.1',
    '172.32.0.1',
    '100.63.1.1',
    '100.128.0.1',
    '168.63.129.15',
    '168.63.129.17',
    '223.255.255.1',
  ]) {
    assert.ok(isPublicAddress(address), address);
  }
  for (const address of ['2606:4700:4700::1111', '2a00:1450::1', '2001:4860:4860::8888']) {
    assert.ok(isPublicAddress(address), address);
  }
  const refused = [
    '0.0.0.0',
    '10.1.2.3',
    '100.64.0.1',
    '100.127.255.255',
    '127.0.0.1',
    '127.255.255.254',
    '169.254.169.254',
    '168.63.129.16',
    '::ffff:168.63.129.16',
    '64:ff9b::a83f:8110',
    '172.16.0.1',
    '172.31.255.255',
    '192.0.0.8',
    '192.168.1.1',
    '198.18.0.1',
    '224.0.0.1',
    '239.1.1.1',
    '255.255.255.255',
    '::',
    '::1',
    '::ffff:8.8.8.8',
    '::ffff:7f00:1',
    '::7f00:1',
    '64:ff9b::7f00:1',
    'fc00::1',
    'fd12:3456::1',
    'fe80::1',
    'fec0::1',
    'ff02::1',
    '2001:db8::1',
    '2001::1',
    '2002:7f00:1::',
    '100::1',
    'localhost',
    '',
    '127.1',
    '1.1.1.1.1',
  ];
  for (const address of refused) assert.ok(!isPublicAddress(address), address);
});
