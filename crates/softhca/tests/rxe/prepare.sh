#!/bin/bash
# Makes what the Soft-RoCE guest boots from: DIRECTORY/kernel and DIRECTORY/initramfs.
#
# The kernel is Debian's (the amd64 flavour: the cloud flavour has no rdma_rxe), downloaded and not installed. Does nothing
# if they are there already. On failure the last line on stderr says why.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || { echo "usage: prepare.sh DIRECTORY" >&2; exit 2; }
die() { echo "$*" >&2; exit 1; }

for tool in apt-cache apt-get dpkg-deb depmod modprobe cpio gzip busybox; do
    [ -x "$(PATH=$PATH:/usr/sbin:/sbin command -v $tool)" ] || die "$tool is not installed"
done
PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$1" && cd "$1"
{ exec 9>lock && flock -w 300 9; } || die "another run holds $1/lock"

# Modules that the guest loads; what they need comes with them. rxe finds crc32 by its algorithm only.
wanted="virtio_pci virtio_net 9pnet_virtio 9p crc32_generic rdma_rxe"
package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*-amd64\)$/\1/p' | head -1)
recipe=$(cat "$here/prepare.sh" "$here/init" | cksum)
made=$(cat made 2>/dev/null || true)
[ -f kernel ] && [ -f initramfs ] && [ "$made" = "${package:-${made%% *}} $recipe" ] && exit 0
[ -n "$package" ] || die "apt knows no package linux-image-amd64"

rm -rf made kernel initramfs root tree && mkdir root
if ! ls "$package"_*.deb >/dev/null 2>&1; then
    rm -f ./*.deb
    apt-get download -qq "$package" >log 2>&1 || die "cannot download $package: $(tail -1 log)"
fi
version=${package#linux-image-}
modules=lib/modules/$version
dpkg-deb --fsys-tarfile "$package"_*.deb | tar -x -C root --wildcards "./boot/vmlinuz-*" "./$modules/modules.*" \
    "./$modules/kernel/drivers/infiniband/*" "./$modules/kernel/drivers/virtio/*" "./$modules/kernel/drivers/net/*net*" \
    "./$modules/kernel/fs/9p/*" "./$modules/kernel/fs/netfs/*" "./$modules/kernel/fs/fscache/*" \
    "./$modules/kernel/fs/configfs/*" "./$modules/kernel/net/*" "./$modules/kernel/crypto/*" \
    "./$modules/kernel/lib/*" "./$modules/kernel/arch/x86/crypto/*" 2>log || grep -q "Not found in archive" log || die "$(tail -1 log)"
depmod -b root "$version" 2>>log

mkdir -p tree/bin tree/modules tree/proc tree/sys tree/dev tree/host
cp "$here/init" tree/init && chmod +x tree/init
cp "$(command -v busybox)" tree/bin/busybox
for module in $wanted; do
    modprobe -d root -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | awk '!seen[$0]++' >order
while read -r file; do
    cp "$file" tree/modules/ && basename "$file"
done <order >tree/modules/order
(cd tree && find . | cpio -o -H newc --quiet) | gzip -1 >initramfs.new
mv "root/boot/vmlinuz-$version" kernel
rm -rf root tree order && mv initramfs.new initramfs
echo "$package $recipe" >made
