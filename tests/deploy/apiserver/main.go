// Command apiserver runs a Kubernetes API server and its etcd in one process, for the tests of the chart.
//
//	apiserver DIR PORT
//
// It keeps its data, its certificate (apiserver.crt) and its keys in DIR, which must exist, listens on 127.0.0.1:PORT
// and takes whoever shows the token in DIR/token for an administrator. It ends when its standard input does, so that
// it never outlives who started it. There is no controller and no kubelet: what is created stays as it was admitted.
package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

const patience = time.Minute

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: apiserver DIR PORT")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(1)
	}
}

func serve(dir, port string) error {
	store, stop, err := startEtcd(filepath.Join(dir, "etcd"))
	if err != nil {
		return err
	}
	defer stop()
	key := filepath.Join(dir, "accounts.key")
	if err := writeKey(key); err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil {
		return err
	}
	users := filepath.Join(dir, "users.csv")
	if err := os.WriteFile(users, []byte(string(token)+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		return err
	}
	command := app.NewAPIServerCommand()
	command.SetArgs([]string{
		"--etcd-servers=" + store,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + port,
		"--cert-dir=" + dir,
		"--token-auth-file=" + users,
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://localhost",
		"--service-account-key-file=" + key,
		"--service-account-signing-key-file=" + key,
		// Nobody makes the default account of a namespace here, and without one no pod would be admitted.
		"--disable-admission-plugins=ServiceAccount",
	})
	ended := make(chan error, 1)
	go func() { ended <- command.Execute() }()
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	return <-ended
}

// startEtcd gives the address of a store that is ready, and what ends it.
func startEtcd(dir string) (string, func(), error) {
	client, err := freeURL()
	if err != nil {
		return "", nil, err
	}
	peer, err := freeURL()
	if err != nil {
		return "", nil, err
	}
	config := embed.NewConfig()
	config.Dir = dir
	config.LogLevel = "error"
	config.UnsafeNoFsync = true
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return "", nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return client.String(), etcd.Close, nil
	case err := <-etcd.Err():
		return "", nil, err
	case <-time.After(patience):
		etcd.Close()
		return "", nil, fmt.Errorf("etcd was not ready within %s", patience)
	}
}

func freeURL() (url.URL, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return url.URL{}, err
	}
	defer listener.Close()
	return url.URL{Scheme: "http", Host: listener.Addr().String()}, nil
}

// writeKey makes the key with which the server signs the tokens of service accounts.
func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(path, pem.EncodeToMemory(&block), 0o600)
}
