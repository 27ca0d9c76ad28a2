set -e
data=/var/lib/postgresql/data
if [ ! -s $data/PG_VERSION ]; then
    /opt/postgresql/initdb -D $data -U "$POSTGRES_USER" -A "$POSTGRES_HOST_AUTH_METHOD" -E UTF8 --locale C.UTF-8
    echo "host all all all $POSTGRES_HOST_AUTH_METHOD" >> $data/pg_hba.conf
    echo "CREATE DATABASE $POSTGRES_USER" | /opt/postgresql/postgres --single -D $data postgres
fi
exec /opt/postgresql/postgres -D $data -c listen_addresses='*' -k /tmp
