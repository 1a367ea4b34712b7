for f in "$0/.workspaced/$1" "/tmp/$1" "/dev/shm/$1"; do
if [ -f "$f" ] && [ ! -L "$f" ] && [ -O "$f" ] && [ -x "$f" ]; then exec "$f" "$2" "$0"; fi
done
exit 77
